"""Makes models with the built program and runs them: replays and inflated models.

Usage: make_model_test.py BEVY SOURCE_DIR
"""
import concurrent.futures
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from server_process import LIMIT_S, LlamaServer

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")
ROUTES = os.path.join(SOURCE, "tests", "data", "demo_routes.rtrace")
STEPS, SKIP, CHAINS = 24, 16, 8


def bevy(*arguments, stdin=""):
    return subprocess.run([BEVY, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=LIMIT_S)


def read_routes(path):
    """A list with one list of routes per request; a route is the bytes of one token."""
    with open(path, "rb") as file:
        content = file.read()
    magic, requests, layers, _, used = struct.unpack_from("<4s4I", content)
    assert magic == b"RTR1"
    token_bytes, at, found = layers * used, 20, []
    for _ in range(requests):
        tokens, = struct.unpack_from("<I", content, at)
        at += 4
        found.append([content[at + i * token_bytes:at + (i + 1) * token_bytes]
                      for i in range(tokens)])
        at += tokens * token_bytes
    assert at == len(content)
    return found


class Replay(unittest.TestCase):
    """A small gpt-oss that replays the demo model's routes."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "replay.gguf")
        cls.made = bevy("make-model", "replay", "--trace", ROUTES, "--skip", str(SKIP),
                        "--steps", str(STEPS), "--requests", str(CHAINS), "--arch", "gpt-oss",
                        "--embedding", "256", "--expert-ff", "64", "--type", "mxfp4",
                        "-o", cls.model)
        assert cls.made.returncode == 0, cls.made.stderr
        # What the command says about how to start a chain.
        cls.starts = re.findall(r"^  (<\d+:0>) +(\d+) +(\d+)$", cls.made.stdout, re.MULTILINE)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_chains(self, *arguments, tokens=STEPS):
        prompts = [part for prompt, _, _ in self.starts for part in ("-p", prompt)]
        result = bevy("run", "-m", self.model, *prompts, "--temp", "0", "-n", str(tokens),
                      "-t", "1", "--memory", "400MiB", "-c", "2048", "--jsonl", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def verify(self, output, *words, code=0):
        result = bevy("make-model", "verify-replay", "-m", self.model, stdin=output)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout + result.stderr)

    def test_every_policy_replays_the_trace(self):
        trace = read_routes(ROUTES)
        self.assertEqual(len(self.starts), CHAINS)
        expected = {start: trace[int(request)][SKIP:SKIP + STEPS]
                    for start, _, request in self.starts}
        for policy, parallel in (("bevy", 8), ("bevy", 3), ("lockstep", 8)):
            with self.subTest(policy=policy, parallel=parallel):
                path = os.path.join(self.folder.name, "routes.rtrace")
                output = self.run_chains("--policy", policy, "-np", str(parallel),
                                         "--expert-cache", "25%", "--record-routes", path)
                self.verify(output, f"{CHAINS} replies", f"{CHAINS * STEPS} tokens")
                # The first step is the prompt, and the last token is not computed.
                self.assertEqual(sorted(read_routes(path)),
                                 sorted(routes[1:] for routes in expected.values()))

    def test_chains_go_round(self):
        line = json.loads(self.run_chains(tokens=STEPS + 3).splitlines()[0])
        chain = line["prompt"][1:].split(":")[0]
        self.assertEqual(line["text"], "".join(f"<{chain}:{(i + 1) % STEPS}>"
                                               for i in range(STEPS + 3)))

    def test_any_prompt_leads_into_a_chain(self):
        result = bevy("run", "-m", self.model, "-p", "Hello there", "-p", "What?", "--temp", "0",
                      "-n", "9", "-t", "1", "--memory", "400MiB", "-c", "1024", "--jsonl")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.verify(result.stdout, "2 replies", "18 tokens")

    def test_other_outputs_are_refused(self):
        first = int(self.starts[0][1])
        self.verify(f"{first} {first + 1} {first + 2}\n[{first + STEPS - 1}, {first}]\n",
                    "2 replies", "5 tokens")
        self.verify(f"{first} {first + 2}\n", "<0:2>", "after <0:0> comes <0:1>", code=1)
        self.verify(f"{first}\n{first + STEPS - 1} {first + STEPS}\n", "line 2", "1 of 2", code=1)
        self.verify("3 4 5\n", "token 3", code=1)
        self.verify("some text\n", "neither JSON nor the number of a token", code=1)
        self.verify('{"prompt": "<0:0>", "text": "<0:2>"}\n', "after <0:0> comes <0:1>", code=1)
        self.verify('{"prompt": "<0:0>", "text": "<0:1> and"}\n', "' and'", code=1)
        self.verify('{"prompt": "<0:0>", "text": ""}\n', "no tokens", code=1)
        self.verify('{"prompt": ', "not a JSON object", code=1)
        self.verify('{"prompt": "<0:0>"}\n', "neither", code=1)
        self.verify("", "no reply", code=1)
        other = bevy("make-model", "verify-replay", "-m", MODEL, stdin="256\n")
        self.assertEqual(other.returncode, 1)
        self.assertIn("not a replay model", other.stderr)

    def test_llama_server_follows_the_chains(self):
        llama = LlamaServer(self.model, "-np", str(CHAINS), "-c", str(128 * CHAINS))
        try:
            def complete(token):
                body = {"prompt": [token], "temperature": 0, "n_predict": STEPS}
                request = urllib.request.Request(llama.url + "/completion",
                                                 json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
                    return json.loads(reply.read())
            with concurrent.futures.ThreadPoolExecutor(CHAINS) as pool:
                replies = list(pool.map(complete, [int(token) for _, token, _ in self.starts]))
        finally:
            llama.kill()
        self.assertEqual([reply["tokens_predicted"] for reply in replies], [STEPS] * CHAINS)
        for reply, (start, _, _) in zip(replies, self.starts):
            self.assertEqual(reply["prompt"], start)
        self.verify("\n".join(json.dumps(reply) for reply in replies), f"{CHAINS} replies",
                    f"{CHAINS * STEPS} tokens")


class ReplayOptions(unittest.TestCase):
    def refused(self, *arguments, words):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.gguf")
            result = bevy("make-model", "replay", "-o", path, *arguments)
            self.assertEqual(os.listdir(folder), [])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("bevy: error: ", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_mistakes(self):
        custom = ("--trace", ROUTES, "--requests", "4", "--steps", "20")
        self.refused(words=["no routes", "--trace", "--generated"])
        self.refused("--trace", "/no/such.rtrace", words=["/no/such.rtrace"])
        self.refused(*custom, "--generated", words=["--generated"])
        self.refused("--generated", words=["--layers"])
        self.refused(*custom, "--shape", "gpt-oss-20b", words=["6 layers", "has 24"])
        self.refused(*custom, "--experts", "16", words=["32 experts per layer", "has 16"])
        self.refused(*custom, "--shape", "gpt-5", words=["gpt-5", "qwen3-30b-a3b"])
        self.refused("--trace", ROUTES, words=["only 11 of the 12", "100 tokens"])
        self.refused(*custom, "--skip", "200", words=["only 0 of the 12", "220 tokens"])
        self.refused(*custom, "--embedding", "96", words=["embedding of 112", "has 96"])
        self.refused(*custom, "--type", "q4_K", "--expert-ff", "288", words=["288", "q4_K"])
        self.refused(*custom, "--type", "q9", words=["--type", "q9", "MXFP4"])
        self.refused("--generated", "--shape", "gpt-oss-20b", "--type", "q4_K",
                     words=["2880 is not a multiple", "256"])
        self.refused(*custom, "--vocab", "300", words=["339", "300"])

    def test_generated_routes_depend_on_the_seed_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            contents = []
            for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
                path = os.path.join(folder, name)
                made = bevy("make-model", "replay", "--generated", "--shape", "qwen3-30b-a3b",
                            "--layers", "2", "--embedding", "256", "--expert-ff", "256",
                            "--vocab", "400", "--requests", "4", "--steps", "12",
                            "--seed", seed, "-o", path)
                self.assertEqual(made.returncode, 0, made.stderr)
                with open(path, "rb") as file:
                    contents.append(file.read())
                self.assertIn(b"statistics of qwen3-30b-a3b, seed " + seed.encode(), contents[-1])
                output = bevy("run", "-m", path, "-p", "<0:0>", "-p", "<3:11>", "--temp", "0", "-n",
                              "14", "-t", "1", "--memory", "400MiB", "-c", "256", "--jsonl").stdout
                check = bevy("make-model", "verify-replay", "-m", path, stdin=output)
                self.assertIn("2 replies", check.stdout, check.stderr)
            self.assertEqual(contents[0], contents[1])
            self.assertNotEqual(contents[0], contents[2])


class Inflate(unittest.TestCase):
    def test_the_demo_model_says_the_same_with_larger_experts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "wide.gguf")
            command = ("make-model", "inflate", "-m", MODEL, "--expert-ff", "288", "-o", path)
            made = bevy(*command)
            self.assertEqual(made.returncode, 0, made.stderr)
            # Bytes on the disk, not holes.
            status = os.stat(path)
            self.assertGreaterEqual(status.st_blocks * 512, status.st_size)
            texts, expert_bytes = [], []
            for model in (MODEL, path):
                result = bevy("run", "-m", model, "-p", "Once upon a time", "-p", "The moon",
                              "--temp", "0", "-n", "40", "-t", "1", "--memory", "400MiB", "--jsonl")
                self.assertEqual(result.returncode, 0, result.stderr)
                texts.append({line["prompt"]: line["text"]
                              for line in map(json.loads, result.stdout.splitlines())})
                shape = json.loads(bevy("inspect", "-m", model, "--json", "--no-probe").stdout)
                expert_bytes.append(shape["expert_bytes_max"])
            self.assertEqual(texts[0], texts[1])
            self.assertTrue(all(texts[0].values()))
            self.assertEqual(expert_bytes[1] * 64, expert_bytes[0] * 288)
            again = bevy(*command)
            self.assertEqual(again.returncode, 1)
            self.assertIn(path, again.stderr)
            self.assertEqual(bevy(*command, "--force").returncode, 0)

    def test_mistakes(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.gguf")
            for width, word in (("64", "64 wide already"), ("32", "above 64"), ("100", "128"),
                                ("0", "--expert-ff")):
                result = bevy("make-model", "inflate", "-m", MODEL, "--expert-ff", width, "-o", out)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(word, result.stderr)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
