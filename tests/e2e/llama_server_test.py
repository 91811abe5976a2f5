"""The replies of bevy serve against those of llama-server, field by field, on the same model.

Values differ; the names and kinds of all fields must not, except as DIFFERENCES says. Each row of
it is in docs/http-api.md too, with its reason, which is checked here.

Usage: llama_server_test.py BEVY SOURCE_DIR
"""
import json
import os
import sys
import unittest
import urllib.error
import urllib.request

from server_process import LIMIT_S, LlamaServer, ServerProcess, parse_events

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")
HI = [{"role": "user", "content": "Hi"}]
LONG = "word " * 3000

# A field by its path; "only": who has it.
DIFFERENCES = {
    "timings.queued_ms": "bevy", "timings.experts_wait_ms": "bevy", "timings.compute_ms": "bevy",
    "data[].meta.n_experts": "bevy", "data[].meta.n_expert_slots": "bevy",
    "media_marker": "llama-server", "cors_proxy_enabled": "llama-server",
    "response.incomplete_details": "bevy", "incomplete_details": "bevy",
    "response.created_at": "bevy", "response.model": "bevy", "response.output": "bevy",
    "output_index": "bevy", "content_index": "bevy",
    "part.annotations": "bevy", "part.logprobs": "bevy",
}

CHAT = "/v1/chat/completions"
GREEDY = {"temperature": 0, "max_tokens": 4, "n_predict": 4}
REQUESTS = [
    ("GET", "/health", None), ("GET", "/v1/models", None), ("GET", "/models", None),
    ("GET", "/props", None),
    ("POST", "/completion", {"prompt": "Once upon", **GREEDY}),
    ("POST", "/completion", {"prompt": "Once upon", "n_probs": 2, **GREEDY}),
    ("POST", "/completion", {"prompt": ["Once", "upon"], **GREEDY}),
    ("POST", "/completion", {"prompt": "Once upon", "stream": True, **GREEDY}),
    ("POST", "/completion", {"prompt": "Once", "stream": True, "n_probs": 1, **GREEDY}),
    ("POST", "/completion", {"prompt": "Once", "stop": ["upon"], **GREEDY}),
    ("POST", "/v1/completions", {"prompt": "Once upon", **GREEDY}),
    ("POST", "/v1/completions", {"prompt": "Once upon", "logprobs": 2, **GREEDY}),
    ("POST", "/v1/completions", {"prompt": "Once upon", "stream": True, **GREEDY}),
    ("POST", CHAT, {"messages": HI, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "n": 2, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 2, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "logprobs": True, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "stream": True, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "stream": True, "logprobs": True, **GREEDY}),
    ("POST", CHAT, {"messages": HI, "stream": True, "stream_options": {"include_usage": True},
                    **GREEDY}),
    ("POST", CHAT, {"messages": HI, "response_format": {"type": "json_object"}, **GREEDY}),
    ("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 40, "temperature": 0}),
    ("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 40, "temperature": 0,
                               "stream": True}),
    ("POST", "/tokenize", {"content": "Once upon"}),
    ("POST", "/tokenize", {"content": "Once upon", "with_pieces": True}),
    ("POST", "/detokenize", {"tokens": [529, 341]}),
    ("POST", "/apply-template", {"messages": HI}),
]
ERRORS = [
    ("GET", "/nonsense", None),
    ("POST", CHAT, {}), ("POST", CHAT, {"messages": "x"}),
    ("POST", CHAT, {"messages": [{"role": "user"}]}),
    ("POST", CHAT, {"messages": [{"role": "user", "content": LONG}]}),
    ("POST", CHAT, {"messages": HI, "temperature": "hot"}),
    ("POST", CHAT, {"messages": HI, "n": 0}),
    ("POST", CHAT, {"messages": HI, "grammar": "root ::= ("}),
    ("POST", CHAT, {"messages": HI, "response_format": {"type": "xml"}}),
    ("POST", CHAT, {"messages": HI, "top_logprobs": 2}),
    ("POST", CHAT, {"messages": HI, "tools": [], "tool_choice": "maybe"}),
    ("POST", "/completion", {}), ("POST", "/completion", {"prompt": LONG}),
    ("POST", "/completion", {"prompt": [1, 999999]}),
    ("POST", "/v1/embeddings", {"input": "x"}), ("POST", "/rerank", {"query": "x"}),
    ("POST", "/infill", {"input_prefix": "x"}),
]


def ask(url, method, path, body):
    """(status, what the reply holds): a value, or the list of a stream's events."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"},
                                     method=method)
    try:
        reply = urllib.request.urlopen(request, timeout=LIMIT_S)
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        kind, text, status = reply.headers["Content-Type"], reply.read(), reply.status
    if kind.startswith("text/event-stream"):
        return status, list(parse_events(text.decode()))
    return status, json.loads(text)


def kind_of(value):
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"


def fields(value, path=""):
    """{path: kinds} of all that a value holds; the elements of a list share one path."""
    found = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            for name, kinds in fields(inner, f"{path}.{key}" if path else key).items():
                found.setdefault(name, set()).update(kinds)
        found.setdefault(path, set()).add("object")
    elif isinstance(value, list):
        for inner in value:
            for name, kinds in fields(inner, path + "[]").items():
                found.setdefault(name, set()).update(kinds)
        found.setdefault(path, set()).add("array")
    else:
        found[path] = {kind_of(value)}
    return found


def is_listed(path, who):
    """Whether the path, or what it is part of, is a difference. Streams and lists begin with []."""
    path = path.lstrip("[].")
    return any(only == who and (path == known or path.startswith((known + ".", known + "[")))
               for known, only in DIFFERENCES.items())


class SameShapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bevy = ServerProcess(BEVY, MODEL, "-np", "2", "-c", "1024", "--metrics", "--no-webui")
        try:
            cls.llama = LlamaServer(MODEL, "-np", "2", "-c", "1024", "--metrics")
        except AssertionError:
            cls.bevy.kill()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.bevy.kill()
        cls.llama.kill()

    def both(self, method, path, body):
        return (ask(self.bevy.url, method, path, body), ask(self.llama.url, method, path, body))

    def test_replies(self):
        for method, path, body in REQUESTS:
            with self.subTest(path=path, body=body):
                (status, ours), (their_status, theirs) = self.both(method, path, body)
                self.assertEqual((status, their_status), (200, 200), (ours, theirs))
                mine, other = fields(ours), fields(theirs)
                problems = []
                for name in sorted(mine.keys() | other.keys()):
                    if name not in other:
                        if not is_listed(name, "bevy"):
                            problems.append(f"only bevy has {name}")
                    elif name not in mine:
                        if not is_listed(name, "llama-server"):
                            problems.append(f"only llama-server has {name}")
                    elif mine[name] != other[name]:
                        problems.append(f"{name}: {mine[name]}, llama-server {other[name]}")
                self.assertEqual(problems, [])

    def test_errors(self):
        for method, path, body in ERRORS:
            with self.subTest(path=path, body=str(body)[:80]):
                (status, ours), (their_status, theirs) = self.both(method, path, body)
                self.assertEqual(status, their_status, (ours, theirs))
                self.assertEqual(ours["error"]["type"], theirs["error"]["type"], theirs)
                self.assertEqual(fields(ours), fields(theirs))

    def test_slots(self):
        # Those of llama-server also remember their last request.
        (_, ours), (_, theirs) = self.both("GET", "/slots", None)
        self.assertLess({"[].id", "[].n_ctx", "[].is_processing"}, fields(ours).keys())
        self.assertLessEqual(fields(ours).items(), fields(theirs).items())

    def test_greedy_tokens(self):
        """At each place of llama-server's text, both choose the same token. Its kernels sum in
        another order on some processors, so two tokens that are equally likely but for rounding
        count as the same; and the likely ones must be equally likely in both."""
        for prompt in ("Once upon a time", "The moon is", "Tell me a story"):
            _, (_, reply) = self.both("POST", "/tokenize", {"content": prompt})
            text = reply["tokens"]
            for _ in range(12):
                body = {"prompt": text, "temperature": 0, "n_predict": 1, "n_probs": 8}
                ours, theirs = ({token["id"]: token["logprob"] for token in
                                 reply["completion_probabilities"][0]["top_logprobs"]}
                                for _, reply in self.both("POST", "/completion", body))
                our_choice, their_choice = max(ours, key=ours.get), max(theirs, key=theirs.get)
                if our_choice != their_choice:
                    self.assertAlmostEqual(theirs[our_choice], theirs[their_choice], delta=0.02)
                for token in set(ours) & set(theirs):
                    if theirs[token] > -3:
                        self.assertAlmostEqual(ours[token], theirs[token], delta=0.1)
                text.append(their_choice)

    def test_metrics_have_llama_servers_names(self):
        def names(url):
            with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as reply:
                lines = reply.read().decode().splitlines()
            return {line.split(" ")[0] for line in lines if line.startswith("llamacpp:")}
        missing = names(self.llama.url) - names(self.bevy.url)
        # What Bevy does not do has no numbers.
        self.assertEqual({name for name in missing if "spec_decode" not in name}, set())

    def test_every_difference_is_explained(self):
        with open(os.path.join(SOURCE, "docs", "http-api.md"), encoding="utf-8") as file:
            text = file.read()
        for path in DIFFERENCES:
            self.assertIn(f"`{path}`", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
