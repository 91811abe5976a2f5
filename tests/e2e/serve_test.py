"""bevy serve as clients and operators meet it: endpoints, errors, overload, signals, settings.

Usage: serve_test.py BEVY SOURCE_DIR
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest

from server_process import LIMIT_S, ServerProcess, temporary_file, temporary_folder

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")
HERMES = os.path.join(SOURCE, "tests", "data", "hermes_template.jinja")
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome"]}},
                   "required": ["city"]}}}


def serve(*arguments, **keywords):
    return ServerProcess(BEVY, MODEL, *arguments, **keywords)


def refused(*arguments, env=None):
    return subprocess.run([BEVY, "serve", *arguments], capture_output=True, text=True,
                          timeout=LIMIT_S, env=dict(os.environ, **(env or {})))


class Endpoints(unittest.TestCase):
    """One server for all; each test leaves it as it was."""

    @classmethod
    def setUpClass(cls):
        cls.server = serve("-np", "4", "-c", "2048", "--metrics", "--expert-cache", "30%",
                           "--chat-template-file", HERMES, "-a", "tiny")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def test_texts_are_those_of_run(self):
        ran = subprocess.run([BEVY, "run", "-m", MODEL, "-n", "24", "--temp", "0", "-t", "1",
                              "--memory", "400MiB", "-p", "Once upon a time", "--jsonl"],
                             capture_output=True, text=True, timeout=LIMIT_S, check=True)
        reply = self.server.post("/completion", {"prompt": "Once upon a time", "n_predict": 24,
                                                 "temperature": 0})
        self.assertEqual(reply["content"], json.loads(ran.stdout)["text"])

    def test_the_page_brings_all_that_it_uses(self):
        status, headers, page = self.server.request("GET", "/")
        page = page.decode()
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotIn("unsafe", headers["Content-Security-Policy"])
        # Nothing inline, nothing from elsewhere: the policy would stop it.
        self.assertIsNone(re.search(r"<style|<script(?![^>]*src=)|\son\w+=|style=|//", page))
        files = set(re.findall(r'(?:src|href)="(/[^"]*)"', page))
        kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
                 "svg": "image/svg+xml"}
        seen = set()
        while files - seen:
            path = min(files - seen)
            seen.add(path)
            status, headers, body = self.server.request("GET", path)
            self.assertEqual((status, headers["Content-Type"]),
                             (200, kinds[path.rsplit(".", 1)[1]]), path)
            text = body.decode()
            self.assertNotIn("innerHTML", text)
            self.assertIsNone(re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path)
            files |= set(re.findall(r'from "(/[^"]*)"', text))
        self.assertEqual(seen, {"/app.js", "/engine.js", "/markdown.js", "/style.css", "/icon.svg"})

    def test_the_engine_counts_what_was_done(self):
        before = self.server.get("/engine")
        self.server.post("/completion", {"prompt": "The sea", "n_predict": 5, "ignore_eos": True})
        after = self.server.get("/engine")
        self.assertEqual(after["tokens"]["generated"] - before["tokens"]["generated"], 5)
        self.assertGreater(after["expert_hits"] + after["expert_misses"],
                           before["expert_hits"] + before["expert_misses"])
        experts = after["experts"]
        self.assertEqual((experts["layers"], experts["per_layer"]), (6, 32))
        self.assertLessEqual(sum(experts["in_memory"]), experts["room_for"])
        self.assertGreater(after["seconds"]["wall"], before["seconds"]["wall"])

    def test_the_page_shows_nothing_that_a_model_wrote_as_markup(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("needs node to run the page's scripts")
        done = subprocess.run([node, os.path.join(SOURCE, "tests", "web", "markdown_test.mjs"),
                               os.path.join(SOURCE, "src", "server", "web", "markdown.js")],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_stream_adds_up_to_the_whole(self):
        for path, body in (("/completion", {"prompt": "The moon", "n_predict": 12}),
                           ("/v1/completions", {"prompt": "The moon", "max_tokens": 12}),
                           (CHAT, {"messages": HI, "max_tokens": 12})):
            body.update(seed=5, temperature=1)
            whole = self.server.post(path, body)
            events = self.server.stream(path, body)
            if path == "/completion":
                text, expected = "".join(e["content"] for e in events), whole["content"]
            else:
                self.assertEqual(events.pop(), "[DONE]")
                choices = [choice for e in events for choice in e["choices"]]
                text = "".join(c.get("text") or c.get("delta", {}).get("content") or ""
                               for c in choices)
                expected = whole["choices"][0]
                expected = expected.get("text") or expected["message"]["content"]
                self.assertEqual(choices[-1]["finish_reason"], whole["choices"][0]["finish_reason"])
            self.assertEqual(text, expected)

    def test_equal_requests_get_equal_texts_whoever_runs_beside_them(self):
        body = {"prompt": "Tell me about the sea", "n_predict": 20, "seed": 11, "temperature": 0.9}
        alone = self.server.post("/completion", body)["content"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            others = [pool.submit(self.server.post, "/completion",
                                  {"prompt": f"Number {i}", "n_predict": 20, "seed": i})
                      for i in range(6)]
            same = [pool.submit(self.server.post, "/completion", body) for _ in range(4)]
            self.assertEqual({f.result()["content"] for f in same}, {alone})
            for future in others:
                future.result()

    def test_json_schema_is_followed(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9},
                                                   "b": {"enum": ["x", "y"]}},
                  "required": ["a", "b"], "additionalProperties": False}
        reply = self.server.post(CHAT, {
            "messages": HI, "max_tokens": 60, "temperature": 0,
            "response_format": {"type": "json_schema",
                                "json_schema": {"name": "n", "schema": schema}}})
        value = json.loads(reply["choices"][0]["message"]["content"])
        self.assertLessEqual(value["a"], 9)
        self.assertIn(value["b"], ("x", "y"))
        self.assertEqual(reply["choices"][0]["finish_reason"], "stop")

    def test_required_tools_are_called(self):
        body = {"messages": HI, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 200,
                "temperature": 0}
        choice = self.server.post(CHAT, body)["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        self.assertIsNone(choice["message"]["content"])
        call = choice["message"]["tool_calls"][0]
        self.assertEqual((call["type"], call["function"]["name"]), ("function", "get_weather"))
        self.assertEqual(json.loads(call["function"]["arguments"]), {"city": "Rome"})
        events = self.server.stream(CHAT, body)
        deltas = [c["delta"] for e in events if e != "[DONE]" for c in e["choices"]]
        calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
        self.assertEqual([c["function"] for c in calls], [call["function"]])
        self.assertEqual(calls[0]["index"], 0)

    def test_what_a_tool_said_goes_into_the_prompt(self):
        call = {"id": "c1", "type": "function",
                "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}
        prompt = self.server.post("/apply-template", {"messages": HI + [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"}],
            "tools": [WEATHER]})["prompt"]
        self.assertIn('{"name": "get_weather", "arguments": {"city": "Rome"}}', prompt)
        self.assertIn("<tool_response>\nsunny\n</tool_response>", prompt)

    def test_thoughts_are_apart(self):
        body = {"messages": HI, "max_tokens": 40, "temperature": 0,
                "grammar": 'root ::= "<think>\\nhm</think>\\n\\nyes"'}
        message = self.server.post(CHAT, body)["choices"][0]["message"]
        self.assertEqual((message["reasoning_content"], message["content"]), ("hm", "yes"))
        inline = self.server.post(CHAT, dict(body, reasoning_format="none"))
        self.assertEqual(inline["choices"][0]["message"]["content"], "<think>\nhm</think>\n\nyes")

    def test_control_answers_while_everything_is_busy(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            busy = [pool.submit(self.server.post, "/completion",
                                {"prompt": "word " * 300, "n_predict": 150, "ignore_eos": True})
                    for _ in range(8)]
            while not all(slot["is_processing"] for slot in self.server.get("/slots")):
                self.assertFalse(all(f.done() for f in busy))
            self.assertEqual(self.server.get("/health"), {"status": "ok"})
            self.assertEqual(self.server.get("/v1/models")["data"][0]["id"], "tiny")
            metrics = self.server.metrics()
            self.assertGreater(metrics["llamacpp:requests_processing"], 0)
            for future in busy:
                self.assertEqual(future.result()["tokens_predicted"], 150)
        self.server.wait_for_metric("bevy:replies_open", 0)

    def test_a_client_that_goes_away_is_dropped_in_every_phase(self):
        cancelled = "bevy:requests_cancelled_total"
        before = self.server.metrics()[cancelled]
        # On a fast machine all may have reached the end of their context before they were closed.
        while self.server.metrics()[cancelled] == before:
            self.ten_clients_go_away()
            for name in ("llamacpp:requests_processing", "bevy:queue_length", "bevy:replies_open"):
                self.server.wait_for_metric(name, 0)
        self.assertFalse(any(slot["is_processing"] for slot in self.server.get("/slots")))

    def ten_clients_go_away(self):
        body = json.dumps({"prompt": "word " * 400, "n_predict": 100000, "ignore_eos": True,
                           "stream": True})
        sockets = []
        for _ in range(10):  # four run, the others wait
            connection = socket.create_connection(("127.0.0.1", self.server.port))
            connection.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: "
                               f"{len(body)}\r\n\r\n{body}".encode())
            sockets.append(connection)
        for connection in sockets:
            connection.close()

    def test_malformed_http_is_refused(self):
        cases = [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
                 b"GET / HTTP/9.9\r\n\r\n",
                 b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nX: " + b"b" * 20000 + b"\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2000 + b"\r\n",
                 b"POST /completion HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n{}",
                 b"POST /completion HTTP/1.1\r\nContent-Length: -1\r\n\r\n{}",
                 b"POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"]
        for case in cases:
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.settimeout(LIMIT_S)
                connection.sendall(case)
                connection.shutdown(socket.SHUT_WR)
                try:
                    reply = connection.recv(65536)
                except ConnectionError:
                    reply = b""
            self.assertNotIn(b" 200 ", reply.split(b"\r\n")[0], case[:60])
            self.assertEqual(self.server.get("/health"), {"status": "ok"})

    def test_a_body_that_is_too_large_is_refused(self):
        try:
            status, _, body = self.server.request("POST", "/completion", b"x" * (17 << 20))
        except (BrokenPipeError, ConnectionResetError):
            status, body = 413, b"invalid_request_error"
        self.assertEqual(status, 413)
        self.assertIn(b"invalid_request_error", body)

    def test_unknown_paths_and_methods(self):
        for method, path in (("GET", "/nonsense"), ("GET", CHAT), ("DELETE", "/slots")):
            status, _, body = self.server.request(method, path)
            self.assertEqual(status, 404, (method, path))
            self.assertEqual(json.loads(body)["error"]["type"], "not_found_error")

    def test_the_page(self):
        status, headers, body = self.server.request("GET", "/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertIn(b"<!doctype html>", body)

    def test_pages_of_this_machine_may_read_replies_and_no_others(self):
        for origin, allowed in (("http://localhost:3000", True), ("http://127.0.0.1", True),
                                ("http://evil.example", False), ("http://localhost.evil", False)):
            for method in ("GET", "OPTIONS"):
                _, headers, _ = self.server.request(method, "/health", headers={"Origin": origin})
                self.assertEqual(headers.get("Access-Control-Allow-Origin"),
                                 origin if allowed else None)


class Overload(unittest.TestCase):
    def test_beyond_the_queue_requests_are_turned_away(self):
        with serve("-np", "1", "-c", "1024", "--queue", "2", "--metrics") as server:
            body = {"prompt": "x", "n_predict": 900, "ignore_eos": True}
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                replies = [pool.submit(server.request, "POST", "/completion", body)
                           for _ in range(12)]
                replies = [reply.result() for reply in replies]
            codes = sorted(status for status, _, _ in replies)
            self.assertEqual(set(codes), {200, 503}, codes)
            self.assertGreaterEqual(codes.count(200), 3)
            for status, headers, reply in replies:
                if status == 503:
                    self.assertEqual(headers["Retry-After"], "1")
                    self.assertEqual(json.loads(reply)["error"]["type"], "unavailable_error")
            server.wait_for_metric("bevy:replies_open", 0)

    def test_a_slow_reader_holds_nobody_up(self):
        with serve("-np", "2", "-c", "2048", "--metrics") as server:
            body = json.dumps({"prompt": "x", "n_predict": 1000, "ignore_eos": True, "n_probs": 50,
                               "stream": True})
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.connect(("127.0.0.1", server.port))
                slow.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: "
                             f"{len(body)}\r\n\r\n{body}".encode())
                reply = server.post("/completion", {"prompt": "y", "n_predict": 50})
                self.assertEqual(reply["stop_type"] in ("limit", "eos"), True)
                # It generates to its end though nobody reads.
                server.wait_for_metric("llamacpp:requests_processing", 0)
                self.assertEqual(server.metrics()["bevy:queue_length"], 0)
            server.wait_for_metric("bevy:replies_open", 0)

    def test_a_failing_disk_fails_the_request_and_says_why(self):
        with temporary_folder() as folder:
            model = os.path.join(folder, "model.gguf")
            shutil.copy(MODEL, model)
            with ServerProcess(BEVY, model, "-np", "2", "-c", "1024", "--expert-cache", "15%",
                               "--metrics") as server:
                body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0}
                good = server.post("/completion", body)["content"]
                size = os.path.getsize(model)
                os.truncate(model, size // 8)  # most experts are gone
                failed = server.post("/completion", dict(body, prompt="Something else"), 500)
                self.assertEqual(failed["error"]["type"], "server_error")
                self.assertIn("model.gguf", failed["error"]["message"])
                shutil.copy(MODEL, model)
                self.assertEqual(server.post("/completion", body)["content"], good)
                self.assertGreater(server.metrics()["bevy:requests_failed_total"], 0)


class Operation(unittest.TestCase):
    def test_health_while_loading(self):
        with serve(wait=False) as server:
            seen = set()
            while "ready: " not in server.log():
                status, _, body = server.request("GET", "/health")
                seen.add(status)
                if status == 503:
                    self.assertEqual(json.loads(body)["error"], {
                        "message": "Loading model", "type": "unavailable_error", "code": 503})
            self.assertTrue(seen <= {200, 503})
            self.assertEqual(server.get("/health"), {"status": "ok"})
            self.assertEqual(server.stop(), 0)

    def test_a_port_in_use_is_an_error(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            result = refused("-m", MODEL, "--port", port)
        self.assertEqual(result.returncode, 1)
        self.assertIn(port + ": the address is in use", result.stderr)

    def test_models_that_can_not_be_served(self):
        result = refused("-m", "/no/such.gguf", "--port", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/no/such.gguf", result.stderr)

    def test_asked_to_end_it_lets_running_requests_finish(self):
        for sign in (signal.SIGTERM, signal.SIGINT):
            with serve("-np", "1", "-c", "1024", "--metrics") as server:
                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    running = [pool.submit(server.stream, "/completion",
                                           {"prompt": "x", "n_predict": 600, "ignore_eos": True})
                               for _ in range(2)]
                    while server.metrics()["bevy:replies_open"] < 2:
                        pass
                    server.process.send_signal(sign)
                    while "ending: " not in server.log() and server.process.poll() is None:
                        time.sleep(0.01)
                    for future in running:
                        self.assertEqual(future.result()[-1]["tokens_predicted"], 600)
                self.assertEqual(server.process.wait(LIMIT_S), 0)

    def test_what_does_not_finish_in_time_is_ended(self):
        with serve("-np", "1", "-c", "1024", "--metrics", "--drain-seconds", "0") as server:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                running = [pool.submit(server.request, "POST", "/completion",
                                       {"prompt": "x", "n_predict": 1000, "ignore_eos": True})
                           for _ in range(2)]
                server.wait_for_metric("bevy:replies_open", 2)
                self.assertEqual(server.stop(), 0)
                codes = sorted(future.result()[0] for future in running)
                self.assertIn(codes[-1], (200, 503))

    def test_keys(self):
        with temporary_folder() as folder:
            keys = temporary_file(folder, "keys", "# for friends\nalpha\n\nbeta\n")
            with serve("--api-key", "gamma,delta", "--api-key-file", keys) as server:
                for key in ("alpha", "beta", "gamma", "delta"):
                    for header in ({"Authorization": "Bearer " + key}, {"X-Api-Key": key}):
                        self.assertEqual(server.request("GET", "/v1/models", None, header)[0], 200)
                for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "alph"}):
                    for method, path in (("GET", "/v1/models"), ("GET", "/slots"),
                                         ("POST", CHAT), ("GET", "/metrics"), ("GET", "/nonsense")):
                        status, _, body = server.request(method, path, "{}", header)
                        self.assertEqual(status, 401, (path, header))
                        self.assertEqual(json.loads(body)["error"]["type"], "authentication_error")
                for path in ("/health", "/"):
                    self.assertEqual(server.request("GET", path)[0], 200)
            empty = temporary_file(folder, "empty", "# nothing\n")
            result = refused("-m", MODEL, "--api-key-file", empty, "--port", "0")
            self.assertEqual(result.returncode, 2)
            self.assertIn("no key in", result.stderr)

    def test_tls(self):
        with temporary_folder() as folder:
            key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                            "2", "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, capture_output=True)
            with serve("--ssl-key-file", key, "--ssl-cert-file", certificate) as server:
                self.assertTrue(server.url.startswith("https://"))
                context = ssl.create_default_context(cafile=certificate)
                with socket.create_connection(("127.0.0.1", server.port)) as plain, \
                        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                    self.assertIn(b" 200 ", connection.recv(1000))
            wrong = refused("-m", MODEL, "--port", "0", "--ssl-key-file", key,
                            "--ssl-cert-file", key)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("certificate", wrong.stderr)
            half = refused("-m", MODEL, "--port", "0", "--ssl-key-file", key)
            self.assertIn("--ssl-cert-file", half.stderr)

    def test_a_unix_socket(self):
        with temporary_folder() as folder:
            path = os.path.join(folder, "bevy.sock")
            with serve("--host", path):
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(path)
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                    self.assertIn(b" 200 ", connection.recv(1000))

    def test_settings_come_from_command_line_environment_and_file(self):
        with temporary_folder() as folder:
            config = temporary_file(folder, "serve.toml",
                                    'parallel = 3\nalias = "filed"\nctx-size = 900\n')
            env = {"LLAMA_ARG_ALIAS": "env", "LLAMA_ARG_CTX_SIZE": "600", "BEVY_QUEUE": "5",
                   "LLAMA_ARG_ENDPOINT_METRICS": "1"}
            with serve("--config", config, "-c", "300", env=env) as server:
                props = server.get("/props")
                self.assertEqual(props["total_slots"], 3)
                self.assertEqual(props["model_alias"], "env")
                self.assertEqual(props["default_generation_settings"]["n_ctx"], 100)
                self.assertTrue(props["endpoint_metrics"])
            wrong = temporary_file(folder, "wrong.toml", "paralel = 3\n")
            result = refused("-m", MODEL, "--config", wrong)
            self.assertEqual(result.returncode, 2)
            self.assertIn("paralel", result.stderr)
            result = refused("-m", MODEL, env={"LLAMA_ARG_PORT": "99999"})
            self.assertEqual(result.returncode, 2)
            self.assertIn("LLAMA_ARG_PORT", result.stderr)
            self.assertIn("65535", result.stderr)

    def test_help_has_groups(self):
        shown = refused("--help").stdout
        for word in ("Server:", "Access:", "Chat:", "Sampling:", "Memory and cache:", "--port",
                     "--drain-seconds", "127.0.0.1", "8080"):
            self.assertIn(word, shown)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
