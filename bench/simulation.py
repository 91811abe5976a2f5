#!/usr/bin/env python3
"""The comparison of all policies in simulation: writes docs/results/simulation.md and its pictures.

Every policy serves the same requests, with recorded routes, on simulated machines, with the engine
and core that ship (`bevy sim`). The tables show every point of the grid, not a choice of them:
throughput against the lockstep baselines and prefetchers, with the same eviction for everybody and
with the LRU cache that such engines usually have; prefetching, ablations, read orders, fairness.

With a recorded trace (--trace FILE.rtrace) routing is real; without, it is generated with the
statistics of a known model. --quick takes a smaller grid. --seeds are for the policies of the
summary; evictions, ablations and read orders run with the first of them.
"""

import argparse
import csv
import io
import math
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BEVY = REPO / "build/release/src/bevy"
MACHINES = {"study-p1": "two slow cores, a slow SSD",
            "study-p2": "unified memory, a fast SSD",
            "study-p3": "unified memory, a faster one",
            "study-p4": "a GPU, experts in host memory"}
PREFETCHERS = ["prefetch-next-gate", "prefetch-previous-token", "prefetch-frequency",
               "prefetch-transition"]
BASELINES = ["lockstep", "lockstep-overlap", *PREFETCHERS]
DEFAULT = "bevy+prefetch-next-gate@4"
GUESSING = [DEFAULT, "bevy+prefetch-next-gate", "bevy+prefetch-transition"]
OURS = ["bevy", *GUESSING]
ABLATIONS = ["bevy-request", "bevy-unbatched", "bevy-unordered"]


class Results:
    """Throughput and other numbers by (machine, policy, eviction, requests, cache, order)."""

    def __init__(self, options):
        self.options = options
        self.rows = defaultdict(list)

    def sweep(self, policies, evictions, machines, parallel, caches, order="lag", seeds=None):
        o = self.options
        routes = ["--trace", o.trace] if o.trace else ["--model", o.model]
        command = [BEVY, "sim", *routes, "--hardware", ",".join(machines),
                   "--policy", ",".join(policies), "--eviction", ",".join(evictions),
                   "-np", ",".join(map(str, parallel)),
                   "--cache", ",".join(f"{c}%" for c in caches), "--seeds", seeds or o.seeds,
                   "--tokens", o.tokens, "--warmup", o.warmup, "--read-order", order,
                   "--jobs", o.jobs, "-o", "csv", "-q"]
        started = time.monotonic()
        done = subprocess.run([str(word) for word in command], check=True, text=True,
                              stdout=subprocess.PIPE)
        count = 0
        for row in csv.DictReader(io.StringIO(done.stdout)):
            cache = round(100 * float(row["cache_share"]))
            key = (row["hardware"], row["policy"], row["eviction"], int(row["parallel"]), cache,
                   order)
            self.rows[key].append(row)
            count += 1
        print(f"{count} experiments in {time.monotonic() - started:.0f} s: "
              f"{', '.join(policies)} with {', '.join(evictions)}, order {order}",
              file=sys.stderr, flush=True)

    def mean(self, machine, policy, eviction, requests, cache, field="tokens_per_second",
             order="lag", seed=None):
        rows = [row for row in self.rows[(machine, policy, eviction, requests, cache, order)]
                if seed is None or row["seed"] == seed]
        values = [float(row[field] or "nan") for row in rows]
        if field == "tokens_per_second":
            return math.exp(sum(map(math.log, values)) / len(values))
        return sum(values) / len(values)


def geometric(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def spread(values):
    values = list(values)
    return f"{min(values):.2f} / {geometric(values):.2f} / {max(values):.2f}"


def summary(r, machines, parallel, caches):
    """Ratios of bevy to each baseline: least, geometric mean, most, over several requests."""
    several = [n for n in parallel if n >= 2]
    columns = [("lockstep", "reuse"), ("lockstep-overlap", "reuse"), ("best prefetcher", "reuse"),
               ("lockstep", "lru"), ("best prefetcher", "lru")]
    rows = []
    for policy in (DEFAULT, "bevy"):
        for machine in machines:
            points = [(n, c) for n in several for c in caches]
            cells = []
            for name, eviction in columns:
                names = PREFETCHERS if name == "best prefetcher" else [name]
                cells.append(spread(
                    r.mean(machine, policy, "reuse", n, c) /
                    max(r.mean(machine, p, eviction, n, c) for p in names) for n, c in points))
            bound = [r.mean(machine, policy, "reuse", n, c) /
                     r.mean(machine, policy, "reuse", n, c, "bound_tokens_per_second")
                     for n, c in points]
            rows.append([f"`{policy}`", machine, *cells, spread(bound)])
    head = ["policy", "machine", *(f"/ {n}, {e}" for n, e in columns), "of the bound"]
    return table(head, rows)


def points_table(r, machine, parallel, caches):
    rows = []
    for cache in caches:
        for n in parallel:
            speeds = {p: r.mean(machine, p, "reuse", n, cache) for p in BASELINES + OURS}

            def ours(field, point=(n, cache)):
                return r.mean(machine, DEFAULT, "reuse", *point, field)

            best = max(PREFETCHERS, key=lambda p: speeds[p])
            bevy = speeds[DEFAULT]
            rows.append([
                f"{cache} %", str(n), f"{speeds['lockstep']:.4g}",
                f"{speeds['lockstep-overlap']:.4g}",
                f"{speeds[best]:.4g} {best.removeprefix('prefetch-')}",
                f"**{bevy:.4g}**", f"{speeds['bevy']:.4g}",
                f"{bevy / speeds['lockstep']:.2f}", f"{bevy / speeds['lockstep-overlap']:.2f}",
                f"{bevy / speeds[best]:.2f}",
                f"{bevy / r.mean(machine, 'lockstep', 'lru', n, cache):.2f}",
                f"{100 * ours('hit_rate'):.0f}, "
                f"{100 * r.mean(machine, 'bevy', 'known-future', n, cache, 'hit_rate'):.0f} %",
                f"{ours('link_utilisation'):.2f}, {ours('compute_utilisation'):.2f}",
                f"{bevy / ours('bound_tokens_per_second'):.2f}",
                f"{1000 * ours('token_latency_p50_s'):.0f}, "
                f"{1000 * ours('token_latency_p99_s'):.0f}",
                f"{100 * ours('fairness_spread'):.1f} %"])
    head = ["cache", "requests", "lockstep", "overlap", "best prefetcher", "default",
            "`bevy`", "/ lockstep", "/ overlap", "/ prefetcher", "/ lockstep LRU",
            "hits, known future", "link, compute busy", "of the bound", "ms per token p50, p99",
            "unfairness"]
    return table(head, rows)


def relative_table(r, machines, names, base, key, parallel, caches):
    """One row per name: geometric mean over the grid of its throughput relative to `base`."""
    rows = []
    for name in names:
        cells = [spread(key(machine, name, n, c) / key(machine, base, n, c)
                        for n in parallel for c in caches) for machine in machines]
        rows.append([f"`{name}`", *cells])
    return table(["", *machines], rows)


def prefetch_table(r, machine, parallel, caches):
    rows = []
    for policy in PREFETCHERS + GUESSING:
        for n in parallel:
            cells = []
            for c in caches:
                issued = r.mean(machine, policy, "reuse", n, c, "prefetches")
                useful = r.mean(machine, policy, "reuse", n, c, "prefetches_useful")
                missed = r.mean(machine, policy, "reuse", n, c, "expert_misses")
                cells.append(f"{useful / max(issued, 1):.2f}, "
                             f"{useful / max(useful + missed, 1):.2f}")
            rows.append([f"`{policy}`", str(n), *cells])
    return table(["", "requests", *(f"cache {c} %" for c in caches)], rows)


def single_table(r, machines, caches):
    rows = []
    for policy in (DEFAULT, "bevy"):
        rows.append([f"`{policy}`", *(
            spread(r.mean(m, policy, "reuse", 1, c) /
                   max(r.mean(m, p, "reuse", 1, c) for p in BASELINES) for c in caches)
            for m in machines)])
    return table(["", *machines], rows)


def draw(options, machines, parallel, folder):
    """Pictures of throughput over the cache, one per machine, at the middle concurrency."""
    routes = ["--trace", options.trace] if options.trace else ["--model", options.model]
    n = parallel[len(parallel) // 2]
    for machine in machines:
        command = [BEVY, "sim", *routes, "--hardware", machine, "--policy",
                   f"{DEFAULT},prefetch-next-gate,lockstep-overlap,lockstep", "-np", n, "--cache",
                   "10%,25%,50%,75%,90%", "--seeds", "1", "--tokens", options.tokens,
                   "--warmup", options.warmup, "--jobs", options.jobs, "-q", "--plot",
                   folder / f"{machine}.svg"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return n


def report(r, options, machines, parallel, caches, drawn):
    several = [n for n in parallel if n >= 2]
    one = options.seeds.split(",")[0].split("-")[0]  # what side by side runs have in common

    def speed(m, p, n, c):
        return r.mean(m, p, "reuse", n, c, seed=one)

    def by_eviction(m, e, n, c):
        return r.mean(m, "bevy", e, n, c, seed=one)

    def by_order(m, o, n, c):
        return r.mean(m, "bevy", "reuse", n, c, order=o, seed=one)
    routes = (f"recorded routing of {options.model} ({Path(options.trace).name}), the first 16 "
              "tokens of each request dropped" if options.trace
              else f"generated routing with the statistics of {options.model}")
    seeds = options.seeds
    named = ", ".join(f"`{m}` ({MACHINES.get(m, m)})" for m in machines)
    counts = ", ".join(map(str, several))
    sizes = ", ".join(f"{c} %" for c in caches)
    text = [f"""# Policies in simulation

Virtual time, not measurements: the engine and core that ship, a simulated link and processor
(`bevy sim`), and {routes}.
{options.warmup} tokens of warm-up, {options.tokens} measured, seeds {seeds}; requests that end are
replaced at once. Made on {time.strftime("%Y-%m-%d")} by

```sh
./dev bench simulation.py {options.arguments}
```

Machines: {named}.
The default is `{DEFAULT}`: runahead (`bevy`), which guesses while at most 4 requests
run. "Hits, known future" is its hit rate, and what that of `bevy` would be if the cache knew all
routes of the requests that run. The machines' numbers, and where they come from, are in
[profiles/hardware/](../../profiles/hardware/).
`next-gate` guesses are a coin that is right for
80 % of the experts in memory and 60 % of the others; on the demo model the real engine measures
73 % of all and 63 % of those that are missing (`bevy run -v --policy prefetch-next-gate`). The
bound is max(compute if all requests always shared every step, reads of overlapped lockstep).

## Summary

Least / geometric mean / most over every point with 2 or more requests ({counts} requests, {sizes}
of the experts in memory). The names behind the comma are evictions: `reuse` for everybody, or `lru`
for the baseline. "Best prefetcher" is chosen in hindsight at every point. Ratios of the means over
the seeds.

""", summary(r, machines, parallel, caches)]
    pictures = "\n".join(f"![{m}](../images/simulation/{m}.svg)" for m in machines)
    text.append(f"\nThroughput over the cache, {drawn} requests, everybody with `reuse`:\n\n"
                f"{pictures}\n")
    for machine in machines:
        text.append(f"\n## {machine}\n\nTokens per second, everybody with `reuse` unless it says "
                    "LRU.\n\n" + points_table(r, machine, parallel, caches))
    third = machines[min(2, len(machines) - 1)]
    sections = [
        ("One request", "Of the default and `bevy`, relative to the best baseline "
         "in hindsight, with one request.",
         single_table(r, machines, caches)),
        ("Eviction", "Throughput of `bevy` relative to `two-rate`. `known-future` knows the "
         "routes to come of the requests that\nrun, but not the order in which they get there: "
         "it is no strict bound where many compete for a small cache.",
         relative_table(r, machines, options.evictions, "two-rate", by_eviction, parallel,
                        caches)),
        ("Prefetching on top of runahead", "Relative to `bevy` alone.",
         relative_table(r, machines, GUESSING, "bevy", speed, parallel, caches)),
        ("Precision and recall of prefetching",
         "Precision: prefetches whose expert was needed at the layer it was guessed for. Recall: "
         f"missing experts that a prefetch had brought. On {third}.",
         prefetch_table(r, third, parallel, caches)),
        ("Ablations",
         "Relative to `bevy`. `bevy-request` is the published rule taken literally.",
         relative_table(r, machines, ABLATIONS, "bevy", speed, several, caches)),
        ("Read orders", "Relative to `lag`.",
         relative_table(r, machines, options.orders, "lag", by_order, several, caches)),
    ]
    text += [f"\n## {title}\n\n{lead}\n\n{body}" for title, lead, body in sections]
    return "".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trace", help="recorded routes (.rtrace)")
    parser.add_argument("--model", default="gpt-oss-20b")
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--warmup", type=int, default=1500)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--out", type=Path, default=REPO / "docs/results/simulation.md")
    options = parser.parse_args()
    options.arguments = " ".join(
        word if "/" not in word else Path(word).name for word in sys.argv[1:])
    options.evictions = ["reuse", "two-rate", "lfu", "lfru", "lru-layer", "s3-fifo", "sieve", "lru",
                         "known-future"]
    options.orders = ["fifo", "fewest-missing", "most-waiters"]
    machines = list(MACHINES)
    parallel = [1, 4, 8, 16] if options.quick else [1, 2, 4, 8, 16, 32]
    caches = [25, 50, 75] if options.quick else [10, 25, 50, 75, 90]
    if not BEVY.exists():
        sys.exit("build first: ./dev build")

    r = Results(options)
    one = options.seeds.split(",")[0].split("-")[0]
    several = [n for n in parallel if n > 1]
    r.sweep(BASELINES + OURS, ["reuse"], machines, parallel, caches)
    r.sweep(["lockstep", *PREFETCHERS], ["lru"], machines, parallel, caches)
    r.sweep(ABLATIONS, ["reuse"], machines, several, caches, seeds=one)
    r.sweep(["bevy"], [e for e in options.evictions if e != "reuse"], machines, parallel, caches,
            seeds=one)
    for order in options.orders:
        r.sweep(["bevy"], ["reuse"], machines, several, caches, order, seeds=one)
    pictures = REPO / "docs/images/simulation"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = draw(options, machines, parallel, pictures)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(report(r, options, machines, parallel, caches, drawn))
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
