#!/usr/bin/env python3
"""How much of the disk's speed does the link reach while demand reads are pending?

Runs `bevy run --trace` on a model whose cache is far too small, takes from the timeline the bytes
that were read and the time during which at least one read was in flight, and compares with fio
reading the same file with the same block size and depth. The two alternate, A B A B; the medians
are compared.

Needs fio and a model file; without --model, a random one of 4 GiB is made and kept.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BEVY = REPO / "build/release/src/bevy"
MIB = 1 << 20


def make_model(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [BEVY, "make-model", "random", "--arch", "qwen3moe", "--layers", 24,
               "--experts", 64, "--used", 8, "--embedding", 1024, "--heads", 8, "--heads-kv", 2,
               "--head-size", 128, "--expert-ff", 1536, "--vocab", 8000, "--context", 2048,
               "--type", "q4_K", "-o", path]
    subprocess.run([str(word) for word in command], check=True)


def union(spans: list[tuple[float, float]]) -> float:
    """Total length of the union of intervals."""
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(spans):
        total += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return total


def overlap(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> float:
    return union(a) + union(b) - union(a + b)


def run_bevy(model: Path, options) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        trace, prompts = Path(folder) / "trace.json", Path(folder) / "prompts.txt"
        prompts.write_text("".join(f"Request number {i}.\n" for i in range(options.requests)))
        command = [BEVY, "run", "-m", model, "--prompts", prompts, "-np", options.requests,
                   "-n", options.tokens, "--expert-cache", options.cache, "--trace", trace,
                   "--jsonl", "--ignore-eos", "--temp", 0]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        events = json.loads(trace.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    reads, steps, size = [], [], 0
    for event in events:
        if event.get("ph") != "X":
            continue
        span = (event["ts"], event["ts"] + event["dur"])
        if "bytes" in event.get("args", {}):
            reads.append(span)
            size += event["args"]["bytes"]
        elif "stage" in event.get("args", {}):
            steps.append(span)
    busy = union(reads)
    return {"speed": size / busy, "reads": len(reads), "block": size // len(reads),
            "depth": sum(b - a for a, b in reads) / busy, "overlap": overlap(reads, steps) / busy,
            "share": busy / (max(e for _, e in reads) - min(b for b, _ in reads))}


def run_fio(model: Path, block: int, depth: int) -> float:
    block = block // 4096 * 4096
    command = ["fio", "--name=link", f"--filename={model}", "--readonly", "--rw=randread",
               f"--bs={block}", "--direct=1", "--ioengine=io_uring", f"--iodepth={depth}",
               "--runtime=5", "--time_based", "--output-format=json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["jobs"][0]["read"]["bw_bytes"] / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=REPO / "build/bench/random-4g.gguf")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=6)
    parser.add_argument("--cache", default="10%")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slices", type=int, default=3,
                        help="reads per expert that are in flight together")
    options = parser.parse_args()
    if not shutil.which("fio"):
        print("link_speed: fio is not installed", file=sys.stderr)
        return 1
    if not options.model.exists():
        make_model(options.model)
    ours, theirs = [], []
    for _ in range(options.rounds):
        result = run_bevy(options.model, options)
        ours.append(result["speed"])
        block = result["block"] // options.slices
        depth = max(1, round(result["depth"] * options.slices))
        theirs.append(run_fio(options.model, block, depth))
        print(f"bevy {result['speed']:7.0f} MB/s   fio {theirs[-1]:7.0f} MB/s   "
              f"({result['reads']} experts of {result['block'] / MIB:.2f} MiB; "
              f"fio block {block / MIB:.2f} MiB, depth {depth}; "
              f"link busy {result['share']:.0%} of the run, "
              f"computing during {result['overlap']:.0%} of that)", flush=True)
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"median: bevy {statistics.median(ours):.0f} MB/s, "
          f"fio {statistics.median(theirs):.0f} MB/s, ratio {ratio:.2f}")
    return 0 if ratio >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
