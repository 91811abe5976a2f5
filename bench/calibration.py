#!/usr/bin/env python3
"""How far the simulator predicts the real engine on this machine.

Calibrates (`bevy calibrate`), records the routes of a real run (`bevy run --record-routes`; they do
not depend on policy or cache), then measures every policy and cache size with the real engine
(`bevy bench`) and simulates the same: same routes, number of requests, cache and window. The table
shows both throughputs and their ratio.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BEVY = REPO / "build/release/src/bevy"


def bevy(*words, quiet=True):
    done = subprocess.run([str(word) for word in (BEVY, *words)], text=True, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if quiet else None)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="one per line")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--caches", default="25%,50%,75%")
    parser.add_argument("--policies", default="bevy,lockstep-overlap,lockstep")
    parser.add_argument("--tokens", type=int, default=24, help="measured, per request")
    parser.add_argument("--warmup", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep profiles and routes there")
    o = parser.parse_args()
    folder = o.folder or Path(tempfile.mkdtemp(prefix="bevy-calibration-"))
    folder.mkdir(parents=True, exist_ok=True)
    hardware, shape = folder / "machine.json", folder / "model.json"
    routes, prompts = folder / "routes.rtrace", folder / "prompts.txt"
    lines = [line for line in o.prompts.read_text().splitlines() if line]
    prompts.write_text("".join(lines[i % len(lines)] + "\n" for i in range(o.requests)))
    print(bevy("calibrate", "-m", o.model, "--hardware", hardware, "--model-profile", shape),
          file=sys.stderr)
    # Twice as long as needed: nobody is at its end within the window.
    total = 2 * (o.tokens + o.warmup)
    bevy("run", "-m", o.model, "--prompts", prompts, "-np", o.requests, "-n", total, "-c",
         o.requests * (total + 64), "--temp", 0, "--ignore-eos", "--expert-cache", "75%", "-q",
         "--record-routes", routes)
    real = [json.loads(line) for line in bevy(
        "bench", "-m", o.model, "--prompts", prompts, "-np", o.requests, "-n", o.tokens,
        "--warmup", o.warmup, "--expert-cache", o.caches, "--policy", o.policies, "-r", o.rounds,
        "-o", "jsonl").splitlines()]
    simulated = json.loads(bevy(
        "sim", "--trace", routes, "--drop", 0, "-m", shape, "--hardware", hardware, "-np",
        o.requests, "--cache", o.caches, "--policy", o.policies, "--tokens",
        o.tokens * o.requests, "--warmup", o.warmup * o.requests, "-o", "json"))["runs"]
    print(json.loads(hardware.read_text())["comment"] + "\n")
    print("| cache | policy | real tok/s | simulated | simulated / real | hits real | simulated |\n"
          "|---|---|---|---|---|---|---|")
    worst = 0.0
    for row in simulated:
        mine = [r for r in real if r["policy"] == row["policy"] and r["slots"] == row["slots"]]
        speeds = sorted(r["tokens_per_second"] for r in mine)
        speed = (speeds[(len(speeds) - 1) // 2] + speeds[len(speeds) // 2]) / 2
        ratio = row["tokens_per_second"] / speed
        worst = max(worst, abs(ratio - 1))
        print(f"| {100 * row['cache_share']:.0f} % | {row['policy']} | {speed:.2f} "
              f"({speeds[0]:.2f} - {speeds[-1]:.2f}) | {row['tokens_per_second']:.2f} | "
              f"{ratio:.2f} | {mine[0]['hit_rate']:.2f} | {row['hit_rate']:.2f} |")
    print(f"\nThe largest difference is {100 * worst:.0f} %.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
