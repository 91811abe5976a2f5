#!/usr/bin/env python3
"""Runs a model that is larger than its memory limit, and checks that Bevy stays inside.

Makes a random qwen3moe model of at least --model-gib (kept for the next run), then runs `bevy run`
under `--memory LIMIT` inside a memory cgroup of the same size (page cache included), and reports
the peak resident memory and the major page faults while tokens were generated. Needs root for the
cgroup; without it, the run is only measured, not limited.

Fails when the peak exceeds the budget, when the process is killed, or when decode faults more than
--faults-max pages.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BEVY = REPO / "build/release/src/bevy"
GIB = 1 << 30


def make_model(path: Path, gib: float) -> None:
    layers, experts, embedding, expert_ff = 24, 64, 2048, 1024
    # One Q4_K weight takes 4.5 bits; three matrices per expert.
    expert_bytes = 3 * embedding * expert_ff * 4.5 / 8
    layers = max(layers, round(gib * 1.03 * GIB / (experts * expert_bytes)))
    command = [BEVY, "make-model", "random", "--arch", "qwen3moe", "--layers", layers,
               "--experts", experts, "--used", 8, "--embedding", embedding, "--heads", 16,
               "--heads-kv", 4, "--head-size", 128, "--expert-ff", expert_ff, "--vocab", 32000,
               "--context", 4096, "--type", "q4_K", "-o", path]
    subprocess.run([str(word) for word in command], check=True)


class Cgroup:
    """A memory cgroup of a given size, version 1 or 2; does nothing where it can't be made."""

    def __init__(self, limit: int):
        self.path = None
        v1 = Path("/sys/fs/cgroup/memory")
        v2 = Path("/sys/fs/cgroup")
        try:
            if v1.is_dir():
                self.path = v1 / f"bevy-bench-{os.getpid()}"
                self.path.mkdir()
                (self.path / "memory.limit_in_bytes").write_text(str(limit))
            elif (v2 / "cgroup.controllers").exists():
                self.path = v2 / f"bevy-bench-{os.getpid()}"
                self.path.mkdir()
                (self.path / "memory.max").write_text(str(limit))
                (self.path / "memory.swap.max").write_text("0")
        except OSError as error:
            print(f"no memory cgroup ({error}): measuring without a limit", file=sys.stderr)
            self.path = None

    def enter(self) -> None:
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int:
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.path and (self.path / name).exists():
                return int((self.path / name).read_text())
        return 0

    def close(self) -> None:
        if self.path:
            time.sleep(0.2)
            try:
                self.path.rmdir()
            except OSError:
                pass


def major_faults(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[9])
    except (OSError, IndexError):
        return -1


def run(model: Path, limit: int, requests: int, tokens: int) -> dict:
    cgroup = Cgroup(limit)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompts:
        prompts.writelines(f"This is request number {i} of {requests}.\n" for i in range(requests))
        prompts.flush()
        command = [BEVY, "run", "-m", model, "--prompts", prompts.name, "-np", requests,
                   "-n", tokens, "-c", 512 * requests, "--memory", limit, "--jsonl", "--ignore-eos",
                   "--temp", 0]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                   text=True, preexec_fn=cgroup.enter)
        # The first finished request ends the warm-up: from then on only decode runs.
        first = process.stdout.readline()
        faults_begin = major_faults(process.pid)
        faults_end = faults_begin
        lines = [first] if first else []
        for line in process.stdout:
            lines.append(line)
            faults_end = max(faults_end, major_faults(process.pid))
        process.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "code": process.returncode,
        "finished": len(lines),
        "peak_rss": usage.ru_maxrss * 1024,
        "peak_cgroup": cgroup.peak(),
        "faults_total": usage.ru_majflt,
        "faults_between_replies": faults_end - faults_begin,
    }
    cgroup.close()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=REPO / "build/bench/random-10g.gguf")
    parser.add_argument("--model-gib", type=float, default=10)
    parser.add_argument("--limit-gib", type=float, default=4)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--faults-max", type=int, default=50,
                        help="major faults allowed over the whole run")
    options = parser.parse_args()
    if not options.model.exists():
        options.model.parent.mkdir(parents=True, exist_ok=True)
        make_model(options.model, options.model_gib)
    limit = int(options.limit_gib * GIB)
    result = run(options.model, limit, options.requests, options.tokens)
    print(f"model                       {options.model.stat().st_size / GIB:.2f} GiB")
    print(f"limit (--memory, cgroup)    {limit / GIB:.2f} GiB")
    print(f"peak resident memory        {result['peak_rss'] / GIB:.2f} GiB")
    if result["peak_cgroup"]:
        print(f"peak of the cgroup          {result['peak_cgroup'] / GIB:.2f} GiB")
    print(f"requests finished           {result['finished']} of {options.requests}")
    print(f"major faults, whole run     {result['faults_total']}")
    print(f"major faults between first and last reply  {result['faults_between_replies']}")
    ok = (result["code"] == 0 and result["finished"] == options.requests
          and result["peak_rss"] <= limit and result["faults_total"] <= options.faults_max)
    print("ok" if ok else f"FAILED (exit code {result['code']})")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
