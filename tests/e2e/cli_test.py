"""Runs the built program as a user would: errors, output kinds, Ctrl-C, the live view on a pty.

Usage: cli_test.py BEVY SOURCE_DIR [--update-golden]
"""
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BEVY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "bevy-tiny-moe-Q8_0.gguf")
GOLDEN = os.path.join(SOURCE, "tests", "data", "help_run.txt")
UPDATE = "--update-golden" in sys.argv
LIMIT_S = 240


def bevy(*arguments, stdin=""):
    return subprocess.run([BEVY, *arguments], input=stdin, capture_output=True, text=True,
                          timeout=LIMIT_S)


def generate(*arguments, stdin=""):
    return bevy("run", "-m", MODEL, "-n", "8", "--temp", "0", "-t", "1", "--memory", "400MiB",
                *arguments, stdin=stdin)


def gguf(architecture, tensor, shard=None):
    """The smallest file with one F32 tensor; `shard`: its number, from 0, and of how many."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 4 if shard else 1)
    head += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    if shard:
        head += text("split.no") + struct.pack("<IH", 2, shard[0])
        head += text("split.count") + struct.pack("<IH", 2, shard[1])
        head += text("split.tensors.count") + struct.pack("<Ii", 5, shard[1])
    head += text(tensor) + struct.pack("<IQIQ", 1, 32, 0, 0)
    return head + b"\0" * (-len(head) % 32) + b"\0" * 128


class Errors(unittest.TestCase):
    def refused(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn("bevy: error: ", result.stderr)
        self.assertNotIn("terminate", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_missing_file(self):
        self.refused(bevy("run", "-m", "/no/such.gguf", "-p", "x"), 1, "/no/such.gguf")
        self.refused(bevy("inspect", "-m", "/no/such.gguf"), 1, "/no/such.gguf")

    def test_files_that_can_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file.gguf")
            for content, words in ((b"plain text, no model at all", ["file.gguf"]),
                                   (gguf("llama", "blk.0.ffn_down.weight"), ["dense model"]),
                                   (gguf("strange", "blk.0.ffn_down_exps.weight"),
                                    ["strange", "qwen3moe"])):
                with open(path, "wb") as file:
                    file.write(content)
                self.refused(bevy("run", "-m", path, "-p", "x"), 1, *words)
                self.refused(bevy("inspect", "-m", path, "--no-probe"), 1, *words)

    def test_truncated_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.gguf")
            with open(MODEL, "rb") as whole, open(path, "wb") as cut:
                cut.write(whole.read()[:-100000])
            self.refused(bevy("run", "-m", path, "-p", "x"), 1, "cut.gguf", "truncated")
            self.refused(bevy("inspect", "-m", path), 1, "cut.gguf", "truncated")

    def test_missing_shards_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "big-00002-of-00003.gguf")
            with open(path, "wb") as file:
                file.write(gguf("qwen3moe", "blk.0.ffn_down_exps.weight", (1, 3)))
            self.refused(bevy("run", "-m", path, "-p", "x"), 1, "big-00001-of-00003.gguf",
                         "big-00003-of-00003.gguf")

    def test_the_smallest_budget_is_named_and_works(self):
        refused = bevy("run", "-m", MODEL, "-p", "x", "--memory", "20MiB")
        self.refused(refused, 1, "20.0 MiB", "hint")
        smallest = re.search(r"budget to (\d+)MiB", refused.stderr).group(1)
        self.assertEqual(bevy("run", "-m", MODEL, "-p", "x", "-n", "2", "-t", "1", "--memory",
                              smallest + "MiB").returncode, 0)
        self.refused(bevy("run", "-m", MODEL, "-p", "x", "--memory", f"{int(smallest) - 1}MiB"), 1)

    def test_prompts(self):
        self.refused(generate("-p", "word " * 2000), 1, "tokens", "context")
        self.refused(generate("--prompts", "/no/such/prompts.txt"), 1, "/no/such/prompts.txt")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prompts.txt")
            with open(path, "wb") as file:
                file.write(b"Tell me\n\n\xff\xfe odd bytes\n")
            mended = generate("--prompts", path, "--jsonl")
            self.assertEqual(mended.returncode, 0, mended.stderr)
            self.assertEqual(len(mended.stdout.splitlines()), 2)

    def test_outputs_that_can_not_be_written(self):
        self.refused(generate("-p", "x", "--trace", "/no/such/folder/t.json"), 1, "/no/such/folder")
        self.refused(generate("-p", "x", "--record-routes", "/no/such/folder/t.rtrace"), 1,
                     "/no/such/folder")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([BEVY, "run", "-m", MODEL, "-p", "x", "-n", "4", "-t", "1"],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("bevy: error: ", done.stderr)

    def test_a_reader_that_goes_away(self):
        with subprocess.Popen([BEVY, "run", "-m", MODEL, "-t", "1", "-n", "-1", "--ignore-eos",
                               "-p", "a", "-p", "b", "-p", "c", "--jsonl"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            process.stdout.close()
            code = process.wait(timeout=LIMIT_S)
        self.assertIn(code, (0, 1, -signal.SIGPIPE))

    def test_budget_and_context(self):
        self.refused(bevy("run", "-m", MODEL, "-p", "x", "-c", "5000"), 1, "1024", "--ctx-size")

    def test_values_out_of_range_name_flag_and_range(self):
        for flag, value, words in (("--top-p", "2", ["0 .. 1"]), ("--temp", "nan", ["--temp"]),
                                   ("-np", "0", ["--parallel", "1 .. 1024"]),
                                   ("--memory", "lots", ["lots"]),
                                   ("--policy", "best", ["best", "bevy, ", "next-gate"]),
                                   ("--policy", "bevy+prefetch-luck", ["luck", "next-gate"]),
                                   ("--read-order", "any", ["any", "lag"]),
                                   ("--lookahead", "0", ["--lookahead", "1 .. 16"]),
                                   ("--eviction", "none", ["two-rate"]),
                                   ("--io", "magic", ["uring"]), ("--min-p", "x", ["--min-p"])):
            self.refused(bevy("run", "-m", MODEL, "-p", "x", flag, value), 2, *words)

    def test_predictors_that_can_not_work(self):
        for policy, lookahead, words in (("prefetch-oracle", "1", ["oracle", "simulation"]),
                                         ("bevy+prefetch-next-gate", "7", ["next-gate", "1 to 6"])):
            self.refused(generate("-p", "x", "--policy", policy, "--lookahead", lookahead), 1,
                         *words)

    def test_usage(self):
        self.refused(bevy("run"), 2, "--model")
        self.refused(bevy("run", "-m", MODEL, "--no-such-flag"), 2, "--no-such-flag")
        self.refused(bevy("walk"), 2)
        self.refused(bevy("run", "-m", MODEL), 2, "--prompts")

    def test_make_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "random.gguf")
            made = bevy("make-model", "random", "-o", path)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.refused(bevy("make-model", "random", "-o", path), 1, path)
            shape = json.loads(bevy("inspect", "-m", path, "--json", "--no-probe").stdout)
            self.assertEqual((shape["layers"], shape["experts_per_layer"]), (4, 32))
            self.refused(bevy("make-model", "random", "-o", path, "--used", "40"), 2, "--experts")


class Output(unittest.TestCase):
    def test_version_and_help(self):
        self.assertRegex(bevy("--version").stdout, r"^bevy \d+\.\d+\.\d+\n$")
        self.assertIn("make-model", bevy("help").stdout)
        lines = bevy("run", "--help").stdout.splitlines()
        shown = "\n".join(line.rstrip() for line in lines).strip() + "\n"
        if UPDATE:
            with open(GOLDEN, "w", encoding="utf-8") as file:
                file.write(shown)
        with open(GOLDEN, encoding="utf-8") as file:
            self.assertEqual(shown, file.read(), "run with --update-golden after a change")

    def test_plain(self):
        result = generate("-p", "Once upon a time")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("[1] Once upon a time\n there was"))
        self.assertIn("hit rate", result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)

    def test_jsonl_does_not_depend_on_the_schedule(self):
        prompts = "Once upon a time\n\nTell me a story\n"
        texts = []
        for extra in (["-np", "1"], ["-np", "2", "--policy", "lockstep", "--expert-cache", "20%"]):
            result = generate("--jsonl", "--prompts", "-", *extra, stdin=prompts)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = sorted((json.loads(line) for line in result.stdout.splitlines()),
                           key=lambda line: line["index"])
            self.assertEqual([line["index"] for line in lines], [1, 2])
            self.assertTrue({line["finish_reason"] for line in lines} <= {"length", "stop"})
            texts.append([line["text"] for line in lines])
        self.assertEqual(texts[0], texts[1])

    def test_recorded_routes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.rtrace")
            result = generate("-p", "Once upon a time", "-p", "Tell me", "--ignore-eos",
                              "--record-routes", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, "rb") as file:
                content = file.read()
        requests, layers, experts, used = struct.unpack_from("<4s4I", content)[1:]
        self.assertEqual(requests, 2)
        self.assertGreater(experts, used)
        # Of eight tokens each, the last is not computed.
        self.assertEqual(len(content), 20 + 2 * (4 + 7 * layers * used))

    def test_stop_string(self):
        result = generate("--jsonl", "-p", "Once upon a time", "--stop", "was")
        line = json.loads(result.stdout)
        self.assertEqual((line["text"], line["finish_reason"]), (" there ", "stop"))


class Simulation(unittest.TestCase):
    SWEEP = ["sim", "--model", "gpt-oss-20b", "--hardware", "study-p1,apple-m", "--cache",
             "25%,50%", "-np", "2,4", "--tokens", "60", "--warmup", "30"]

    def test_table_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.svg")
            result = bevy(*self.SWEEP, "--plot", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, encoding="utf-8") as file:
                picture = file.read()
        self.assertIn("generated routes", result.stdout)
        self.assertEqual(len([line for line in result.stdout.splitlines() if "| bevy" in line]), 8)
        self.assertTrue(picture.startswith("<svg ") and picture.endswith("</svg>\n"))
        self.assertIn("study-p1", picture)

    def test_results_do_not_depend_on_jobs(self):
        outputs = [bevy(*self.SWEEP, "--seeds", "1-2", "-o", "json", "-j", jobs, "-q")
                   for jobs in ("1", "4")]
        self.assertEqual(outputs[0].stderr, "")
        self.assertEqual(outputs[0].stdout, outputs[1].stdout)
        runs = json.loads(outputs[0].stdout)["runs"]
        self.assertEqual(len(runs), 32)
        self.assertEqual(len({run["hash"] for run in runs}), 32)

    def test_recorded_routes_are_simulated(self):
        model = {"comment": "", "expert_bytes": 1e6, "layer_bytes": 1e6, "entry_bytes": 0,
                 "head_bytes": 1e6, "pair_scale": 1, "layer_scale": 1, "head_scale": 1,
                 "routing_popularity": 0, "routing_request": 0, "routing_drift": 0,
                 "routing_memory": 0}
        with tempfile.TemporaryDirectory() as folder:
            trace, profile = os.path.join(folder, "t.rtrace"), os.path.join(folder, "m.json")
            self.assertEqual(generate("-p", "Once", "--ignore-eos", "--record-routes",
                                      trace).returncode, 0)
            with open(trace, "rb") as file:
                sizes = struct.unpack("<4s4I", file.read(20))
            model["layers"], model["experts"], model["top_k"] = sizes[2:]
            with open(profile, "w", encoding="utf-8") as file:
                json.dump(model, file)
            result = bevy("sim", "--trace", trace, "--model", profile, "--hardware", "study-p3",
                          "--drop", "0", "-o", "csv", "--tokens", "20", "--warmup", "5")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(len(result.stdout.splitlines()), 3)
            too_short = bevy("sim", "--trace", trace, "--model", profile, "--hardware", "study-p3")
            self.assertEqual(too_short.returncode, 2)
            self.assertIn("16 tokens", too_short.stderr)

    def test_mistakes(self):
        for arguments, code, word in ((["--hardware", "toaster"], 2, "study-p1"),
                                      (["--hardware", "/no/such.json"], 1, "/no/such.json"),
                                      (["--hardware", "study-p1", "--policy", "best"], 2, "best"),
                                      (["--hardware", "study-p1", "--cache", "0.1%"], 1, "--cache"),
                                      (["--hardware", "study-p1", "--plot", "/no/dir/p.svg"], 1,
                                       "/no/dir"),
                                      ([], 2, "--hardware")):
            result = bevy("sim", "--model", "gpt-oss-20b", *arguments)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(word, result.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.rtrace")
            with open(path, "wb") as file:
                file.write(b"RTR1 and so on")
            result = bevy("sim", "--trace", path, "--hardware", "study-p1")
            self.assertEqual(result.returncode, 1)
            self.assertIn("bad.rtrace", result.stderr)

    def test_interrupt_shows_what_is_done(self):
        with subprocess.Popen([BEVY, *self.SWEEP[:-4], "--tokens", "60", "--warmup", "30",
                               "--seeds", "1-1000", "-o", "csv"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertIn("simulating", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130)
        self.assertTrue(output.startswith("model,"))
        self.assertLess(len(output.splitlines()), 16000)


class Bench(unittest.TestCase):
    FEW = ["bench", "-m", MODEL, "-t", "1", "-n", "6", "--warmup", "3", "-r", "2"]

    def test_table_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = os.path.join(folder, "bench.svg")
            result = bevy(*self.FEW, "-np", "1,3", "--policy", "bevy,lockstep",
                          "--expert-cache", "30%", "-p", "5", "--plot", plot)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = [line for line in result.stdout.splitlines() if line.startswith("|")]
            self.assertEqual(len(rows), 2 + 4, result.stdout)
            self.assertIn("tok/s", rows[0])
            self.assertIn("outputs the same", result.stdout)
            with open(plot, encoding="utf-8") as file:
                self.assertIn("lockstep", file.read())

    def test_every_repetition_with_every_number(self):
        prompts = os.path.join(SOURCE, "models", "demo-prompts.txt")
        result = bevy(*self.FEW, "-np", "2", "--eviction", "reuse,lru", "--prompts", prompts, "-q",
                      "-o", "jsonl", "--expert-cache", "25%")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        runs = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([(run["eviction"], run["repetition"]) for run in runs],
                         [("reuse", 0), ("reuse", 1), ("lru", 0), ("lru", 1)])
        for run in runs:
            self.assertEqual(run["tokens"], 12)
            self.assertAlmostEqual(run["cache_share"], 0.25, places=2)
            self.assertGreater(run["expert_misses"], 0)
            self.assertGreater(run["tokens_per_second"], 0)
        csv = bevy(*self.FEW, "-q", "-o", "csv").stdout.splitlines()
        self.assertEqual(len(csv), 1 + 2)
        self.assertEqual(csv[0].split(","), list(runs[0]))

    def test_mistakes(self):
        for words, said in ((["--policy", "bevy,chance"], "chance"), (["-np", "0"], "0"),
                            (["-np", "2,x"], "x"), (["--expert-cache", "50%,"], "''"),
                            (["--eviction", "luck"], "luck"), (["-o", "xml"], "xml"),
                            (["--policy", "prefetch-oracle"], "simulation")):
            result = bevy(*self.FEW, *words)
            self.assertEqual(result.returncode, 2, (words, result.stderr))
            self.assertIn("bevy: error: ", result.stderr)
            self.assertIn(said, result.stderr)
        short = bevy(*self.FEW, "-c", "8", "-p", "2", "-np", "1")
        self.assertEqual(short.returncode, 2, short.stderr)
        self.assertIn("give a larger -c", short.stderr)
        unwritable = bevy(*self.FEW, "--plot", "/no/such/folder/x.svg")
        self.assertEqual(unwritable.returncode, 1)
        self.assertIn("/no/such/folder/x.svg", unwritable.stderr)

    def test_calibration_is_what_the_simulator_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            machine, model = (os.path.join(folder, name) for name in ("m.json", "model.json"))
            result = bevy("calibrate", "-m", MODEL, "-t", "1", "-n", "4", "--hardware", machine,
                          "--model-profile", model)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("what a step costs", result.stdout)
            simulated = bevy("sim", "-m", model, "--hardware", machine, "-n", "200", "--warmup",
                             "50", "-o", "json", "-q")
            self.assertEqual(simulated.returncode, 0, simulated.stderr)
            runs = json.loads(simulated.stdout)["runs"]
            self.assertTrue(all(run["tokens_per_second"] > 0 for run in runs))
            unwritable = bevy("calibrate", "-m", MODEL, "--hardware", "/no/such/folder/x.json",
                              "--model-profile", model)
            self.assertEqual(unwritable.returncode, 1)
            self.assertIn("/no/such/folder/x.json", unwritable.stderr)


class Terminal(unittest.TestCase):
    def run_on_pty(self, tokens, interrupt_after=None):
        pid, fd = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(BEVY, [BEVY, "run", "-m", MODEL, "-n", tokens, "--ignore-eos", "-t", "1",
                            "-p", "Once upon a time", "-p", "Tell me"])
        shown, end = b"", time.monotonic() + LIMIT_S
        sent = False
        while time.monotonic() < end:
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    piece = os.read(fd, 65536)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
            if interrupt_after and interrupt_after in shown and not sent:
                os.kill(pid, signal.SIGINT)
                sent = True
        else:
            os.kill(pid, signal.SIGKILL)
        return shown.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_live_view_restores_the_terminal(self):
        shown, code = self.run_on_pty("40")
        self.assertEqual(code, 0, shown)
        self.assertIn("tok/s", shown)
        self.assertEqual(shown.count("\x1b[?25l"), 1)
        self.assertGreater(shown.index("\x1b[?25h"), shown.index("\x1b[?25l"))

    def test_interrupt_ends_cleanly(self):
        shown, code = self.run_on_pty("-1", b"running")
        self.assertEqual(code, 130, shown)
        self.assertIn("[cancelled]", shown)
        self.assertIn("summary", shown)
        self.assertIn("\x1b[?25h", shown)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
