#!/usr/bin/env python3
"""Runahead against lockstep on a real disk: the same binary, cache policy, kernels, requests and seeds.

For each cache size and concurrency the two policies alternate, A B A B; the table shows the median
throughput of each, the spread of the rounds, and the ratio. Every text must be the same under both. The
model has random weights (made once and kept), so its routing is nearly uniform, the worst case for a
cache; prompts are two tokens long, so that nearly all of the time is decode.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from link_speed import BEVY, REPO, make_model  # noqa: E402


def run(model: Path, policy: str, cache: str, requests: int, tokens: int) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("".join(f"{chr(97 + i)}{chr(110 + i % 8)}\n" for i in range(requests)))
        prompts.flush()
        command = [BEVY, "run", "-m", model, "--prompts", prompts.name, "-np", requests, "-n", tokens,
                   "-c", 256 * requests, "--expert-cache", cache, "--policy", policy, "--jsonl",
                   "--ignore-eos", "-s", 1]
        done = subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True)
    replies = [json.loads(line) for line in done.stdout.splitlines()]

    def number(name: str) -> float:
        return float(re.search(rf"^\s*{name}\s+([0-9.]+)", done.stderr, re.MULTILINE).group(1))

    return {"texts": {reply["index"]: reply["text"] for reply in replies},
            "speed": number("generated tokens per second"), "hits": number("hit rate"),
            "compute": number("compute busy"), "stalled": number("stalled for experts")}


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=REPO / "build/bench/random-4g.gguf")
    parser.add_argument("--caches", default="25%,50%,75%")
    parser.add_argument("--requests", default="1,4,8")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.model.exists():
        make_model(options.model)
    print("| requests | cache | hits | lockstep tok/s | runahead tok/s | ratio | stalled, lockstep | stalled, "
          "runahead | spread |")
    print("|---|---|---|---|---|---|---|---|---|")
    same = True
    for requests in map(int, options.requests.split(",")):
        for cache in options.caches.split(","):
            rounds = {"lockstep": [], "bevy": []}
            for _ in range(options.rounds):
                for policy, results in rounds.items():
                    results.append(run(options.model, policy, cache, requests, options.tokens))
            texts = [result["texts"] for results in rounds.values() for result in results]
            same &= all(text == texts[0] for text in texts)
            speed = {p: statistics.median(r["speed"] for r in rs) for p, rs in rounds.items()}
            stalled = {p: statistics.median(r["stalled"] for r in rs) for p, rs in rounds.items()}
            widest = max(spread([r["speed"] for r in rs]) for rs in rounds.values())
            hits = statistics.median(r["hits"] for r in rounds["bevy"])
            print(f"| {requests} | {cache} | {hits:.0f} % | {speed['lockstep']:.2f} | {speed['bevy']:.2f} | "
                  f"{speed['bevy'] / speed['lockstep']:.2f} | {stalled['lockstep']:.0f} % | "
                  f"{stalled['bevy']:.0f} % | {widest:.0%} |", flush=True)
    print("\nall texts the same under both policies" if same else "\nFAILED: texts differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
