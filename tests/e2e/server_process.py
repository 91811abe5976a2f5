"""Starts `bevy serve` for a test, and talks to it with nothing but the standard library."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

LIMIT_S = 240


class ServerProcess:
    """A running server; use it with `with`. Listens on a free port."""

    def __init__(self, bevy, model, *arguments, env=None, wait=True, memory="400MiB"):
        self.lines = []
        self.listening = threading.Event()
        self.port = None
        self.url = None
        self.process = subprocess.Popen(
            [bevy, "serve", "-m", model, "--port", "0", "-t", "1", "--memory", memory, *arguments],
            stderr=subprocess.PIPE, text=True, errors="replace",
            env=dict(os.environ, OMP_WAIT_POLICY="passive", **(env or {})))
        self.reader = threading.Thread(target=self.read_lines, daemon=True)
        self.reader.start()
        if not self.listening.wait(LIMIT_S):
            self.kill()
            raise AssertionError("the server did not listen: " + self.log())
        if wait:
            self.wait_until_ready()

    def read_lines(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (\S+?),", line)
            if found:
                self.url = found.group(1)
                port = re.search(r":(\d+)$", self.url)
                self.port = int(port.group(1)) if port else None
                self.listening.set()
        self.listening.set()

    def log(self):
        return "".join(self.lines)

    def wait_until_ready(self):
        end = time.monotonic() + LIMIT_S
        while "ready: " not in self.log():
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise AssertionError("the server did not get ready: " + self.log())
            time.sleep(0.02)

    def connect(self, timeout=LIMIT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, bytes)."""
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method, path, body,
                               {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, (status, body)
        return json.loads(body)

    def post(self, path, body, status=200):
        """The JSON of the reply, which must have this status."""
        got, _, reply = self.request("POST", path, body)
        assert got == status, (got, reply)
        return json.loads(reply)

    def stream(self, path, body):
        """The data of all events; "[DONE]" stays text."""
        got, headers, reply = self.request("POST", path, dict(body, stream=True))
        assert got == 200, (got, reply)
        assert headers["Content-Type"] == "text/event-stream", headers
        return list(parse_events(reply.decode()))

    def metrics(self):
        status, _, body = self.request("GET", "/metrics")
        assert status == 200, (status, body)
        lines = [line for line in body.decode().splitlines() if line and line[0] != "#"]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def wait_for_metric(self, name, value):
        end = time.monotonic() + LIMIT_S
        while self.metrics()[name] != value:
            assert time.monotonic() < end, f"{name} is {self.metrics()[name]}, not {value}"
            time.sleep(0.02)

    def stop(self, sign=signal.SIGTERM):
        """The exit code."""
        self.process.send_signal(sign)
        code = self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def parse_events(text):
    for block in text.split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            yield data[0] if data[0] == "[DONE]" else json.loads(data[0])


def temporary_file(folder, name, content):
    path = os.path.join(folder, name)
    with open(path, "wb" if isinstance(content, bytes) else "w") as file:
        file.write(content)
    return path


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="bevy-test-")


class LlamaServer:
    """llama-server on a free port, as the peer of a comparison."""

    def __init__(self, model, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            ["llama-server", "-m", model, "--port", str(port), "-t", "1", "--no-ui",
             "--log-disable", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT_S
        while not self.is_ready():
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise AssertionError("llama-server did not start")
            time.sleep(0.05)

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=LIMIT_S) as reply:
                return reply.status == 200
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()
