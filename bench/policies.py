#!/usr/bin/env python3
"""Runahead against lockstep on a real disk: one binary, cache policy, set of requests and seeds.

For each cache size and concurrency the two policies alternate, A B A B; the table shows the median
throughput of each, the ratio, and the spread of the rounds. Every text must be the same under both.
The model has random weights (made once and kept), so its routing is nearly uniform, the worst case
for a cache; prompts have two tokens, so that nearly all of the time is decode.
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

HEAD = ["requests", "cache", "hits", "lockstep tok/s", "runahead tok/s", "ratio",
        "lockstep stalled", "runahead stalled", "spread"]


def run(model: Path, policy: str, cache: str, requests: int, tokens: int) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.write("".join(f"{chr(97 + i)}{chr(110 + i % 8)}\n" for i in range(requests)))
        prompts.flush()
        command = [BEVY, "run", "-m", model, "--prompts", prompts.name, "-np", requests,
                   "-n", tokens, "-c", 256 * requests, "--expert-cache", cache,
                   "--policy", policy, "--jsonl", "--ignore-eos", "-s", 1]
        done = subprocess.run([str(word) for word in command], check=True, text=True,
                              capture_output=True)
    replies = [json.loads(line) for line in done.stdout.splitlines()]

    def number(name: str) -> float:
        found = re.search(rf"^\s*{name}\s+([0-9.]+)", done.stderr, re.MULTILINE)
        return float(found.group(1))

    return {"texts": {reply["index"]: reply["text"] for reply in replies},
            "speed": number("generated tokens per second"), "hits": number("hit rate"),
            "stalled": number("stalled for experts")}


def median(results: list[dict], key: str) -> float:
    return statistics.median(result[key] for result in results)


def spread(results: list[dict]) -> float:
    speeds = [result["speed"] for result in results]
    return (max(speeds) - min(speeds)) / statistics.median(speeds)


def compare(options, requests: int, cache: str) -> bool:
    """Prints one row; false when a text differs."""
    rounds = {"lockstep": [], "bevy": []}
    for _ in range(options.rounds):
        for policy, results in rounds.items():
            results.append(run(options.model, policy, cache, requests, options.tokens))
    lockstep, bevy = rounds["lockstep"], rounds["bevy"]
    row = [str(requests), cache, f"{median(bevy, 'hits'):.0f} %",
           f"{median(lockstep, 'speed'):.2f}", f"{median(bevy, 'speed'):.2f}",
           f"{median(bevy, 'speed') / median(lockstep, 'speed'):.2f}",
           f"{median(lockstep, 'stalled'):.0f} %", f"{median(bevy, 'stalled'):.0f} %",
           f"{max(spread(lockstep), spread(bevy)):.0%}"]
    print("| " + " | ".join(row) + " |", flush=True)
    texts = [result["texts"] for result in lockstep + bevy]
    return all(text == texts[0] for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=REPO / "build/bench/random-4g.gguf")
    parser.add_argument("--caches", default="25%,50%,75%")
    parser.add_argument("--requests", default="1,4,8")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.model.exists():
        make_model(options.model)
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    same = True
    for requests in map(int, options.requests.split(",")):
        for cache in options.caches.split(","):
            same &= compare(options, requests, cache)
    print("\nall texts the same under both policies" if same else "\nFAILED: texts differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
