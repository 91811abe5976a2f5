#!/usr/bin/env python3
"""Bevy against llama-server: the same model file, memory limit, client and requests.

Both are servers on loopback, driven by the same client over the same endpoint (POST /completion,
streamed, greedy). Each run starts a server in a fresh memory cgroup whose limit covers everything,
page cache included, after the page cache was dropped; the two alternate, and all of it is repeated.
The limit of a point is what Bevy plans for the given share of experts in memory (`bevy inspect
--memory-plan`); llama-server gets exactly the same. Needs root for the cgroup and the caches.

Every request of a run generates from the start to the end. The window begins with the first token
after the warm-up and ends with the first one after --seconds; there must be at least two
tokens per request in it, or it goes on, up to --seconds-max. The tokens of every request must be
the same in all runs of both engines: where they part, it is reported (near ties of random models
may round differently in other kernels), and for a replay model it counts as a failure.

llama-server runs with its strongest flags for a model beyond memory (--peer best), with none but
the necessary (--peer default), or both; read-ahead of the model's disk is as it is, or set for the
runs with --read-ahead (KiB, a list).
"""

import argparse
import datetime
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from memory_limit import Cgroup  # noqa: E402

REPO = Path(__file__).resolve().parent.parent
BEVY = REPO / "build/release/src/bevy"
START_LIMIT_S = 300
PEER_FLAGS = {
    "best": ["-lm", "mmap", "--no-repack", "--no-warmup", "-fa", "on", "-cram", "0", "-fit", "off"],
    "default": [],
}


# --- machine --------------------------------------------------------------------------------------

def read_text(path, otherwise="unknown"):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return otherwise


def disk_of(path):
    """The queue folder of the disk that holds a file, or nothing."""
    number = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not block.exists():
        return None
    block = block.resolve()
    for folder in (block, block.parent):
        if (folder / "queue").is_dir():
            return folder / "queue"
    return None


def processor():
    found = re.search(r"^model name\s*: (.*)$", read_text("/proc/cpuinfo", ""), re.MULTILINE)
    return found.group(1) if found else platform.processor()


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def output_of(*command):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.stdout.strip()


# --- servers --------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process in a memory cgroup of its own, healthy when the constructor returns."""

    def __init__(self, command, limit):
        self.port = free_port()
        self.cgroup = Cgroup(limit)
        self.log = tempfile.TemporaryFile("w+")
        command = [*map(str, command), "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        preexec_fn=self.cgroup.enter)
        end = time.monotonic() + START_LIMIT_S
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{command[0]} did not start:\n{self.tail()}")
            time.sleep(0.1)

    def healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def tail(self):
        self.log.seek(0)
        return "\n".join(self.log.read().splitlines()[-20:])

    def peak(self):
        return self.cgroup.peak()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.cgroup.close()


# --- client ---------------------------------------------------------------------------------------

class Client:
    """One request after the other on one prompt; notes when each token came."""

    def __init__(self, port, prompt, predict):
        self.tokens, self.times, self.error = [], [], None
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        body = {"prompt": prompt, "n_predict": predict, "temperature": 0, "stream": True,
                "cache_prompt": False, "ignore_eos": True, "return_tokens": True}
        self.body = json.dumps(body)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            self.connection.request("POST", "/completion", self.body,
                                    {"Content-Type": "application/json"})
            reply = self.connection.getresponse()
            if reply.status != 200:
                self.error = f"{reply.status} {reply.read()[:300]}"
                return
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                now = time.monotonic()
                for token in event.get("tokens") or []:
                    self.tokens.append(token)
                    self.times.append(now)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            self.error = self.error or str(error)

    def close(self):
        try:
            if self.connection.sock:
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join()
        self.connection.close()


def measure(server, prompts, requests, options):
    """Tokens per second of all requests together in the window, and more."""
    clients = [Client(server.port, prompts[i % len(prompts)], options.predict)
               for i in range(requests)]
    began = time.monotonic()
    for client in clients:
        client.thread.start()
    warm = None
    limit = began + options.warmup_max + options.seconds_max
    while time.monotonic() < limit:
        time.sleep(0.01)
        now = time.monotonic()
        counts = [len(client.times) for client in clients]
        if any(client.error for client in clients):
            break
        if warm is None:
            ready = min(counts) >= options.warmup_tokens and now - began >= options.warmup
            if ready or now - began > options.warmup_max:
                warm, counts_warm = now, counts
        elif now - warm >= options.seconds and sum(counts) - sum(counts_warm) >= 2 * requests:
            break
    times = sorted(t for client in clients for t in list(client.times))
    tokens = [list(client.tokens) for client in clients]
    errors = [client.error for client in clients if client.error]
    for client in clients:
        client.close()
    if errors:
        raise RuntimeError(f"a request failed: {errors[0]}\n{server.tail()}")
    inside = [t for t in times if warm is not None and t >= warm]
    # From the first token to the last: the window has no part in which nobody could be counted.
    # Tokens of one step come together, so those of the first instant are not counted.
    first = [t for t in inside if t < inside[0] + 0.02] if inside else []
    count = len(inside) - len(first)
    speed = count / (inside[-1] - first[-1]) if count > 0 else 0.0
    if count <= 0:  # not a step in all the time: what came at all, over all the time
        speed = len(times) / (time.monotonic() - began)
    gaps = [b - a for client in clients for a, b in zip(client.times, client.times[1:]) if
            warm is not None and b >= warm]
    firsts = [client.times[0] - began for client in clients if client.times]
    return {"speed": speed, "tokens_counted": max(count, 0), "tokens": tokens,
            "first_token_s": statistics.median(firsts) if firsts else None,
            "gap_p50_s": statistics.median(gaps) if gaps else None}


# --- comparison -----------------------------------------------------------------------------------

def plan_limit(options, requests, cache):
    text = output_of(BEVY, "inspect", "-m", options.model, "--memory-plan", "--json",
                     "-np", requests, "-c", options.context * requests, "--expert-cache", cache,
                     "-t", options.threads)
    return json.loads(text)["memory_plan"]["rows"]["total"]


def commands(options, requests, limit, peer):
    common = ["-m", options.model, "-np", requests, "-c", options.context * requests,
              "-t", options.threads]
    if peer == "bevy":
        return [BEVY, "serve", *common, "--memory", limit, "--no-webui",
                *options.bevy_flags.split()]
    return [options.llama_server, *common, "--no-webui", *PEER_FLAGS[peer]]


def run(options, prompts, requests, cache, limit, peer):
    drop_caches()
    server = Server(commands(options, requests, limit, peer), limit)
    try:
        result = measure(server, prompts, requests, options)
        result["peak_bytes"] = server.peak()
    finally:
        server.stop()
    result.update(requests=requests, cache=cache, limit=limit, engine=peer)
    return result


def parted(results):
    """Requests whose tokens are not the same in all results, as (request, position)."""
    found = []
    for request in range(max(len(r["tokens"]) for r in results)):
        streams = [r["tokens"][request] for r in results if request < len(r["tokens"])]
        length = min(map(len, streams))
        for position in range(length):
            if len({stream[position] for stream in streams}) > 1:
                found.append((request + 1, position))
                break
    return found


def spread(values, digits=3):
    text = f"{statistics.median(values):.{digits}g}"
    if len(values) == 1:
        return text
    return f"{text} ({min(values):.{digits}g} - {max(values):.{digits}g})"


def row_of(results, requests, cache, limit, peer, read_ahead):
    ours = [r for r in results if r["engine"] == "bevy"]
    theirs = [r for r in results if r["engine"] == peer]
    ratios = [a["speed"] / b["speed"] for a, b in zip(ours, theirs) if b["speed"] > 0]
    return [cache, str(requests), f"{limit / (1 << 30):.2f}", peer, str(read_ahead),
            spread([r["speed"] for r in theirs]), spread([r["speed"] for r in ours]),
            f"**{spread(ratios)}**" if ratios else "-",
            f"{statistics.median(r['gap_p50_s'] or float('nan') for r in theirs):.2f}, "
            f"{statistics.median(r['gap_p50_s'] or float('nan') for r in ours):.2f}",
            f"{statistics.median(r['first_token_s'] or float('nan') for r in theirs):.1f}, "
            f"{statistics.median(r['first_token_s'] or float('nan') for r in ours):.1f}"]


HEAD = ["cache", "requests", "limit GiB", "llama-server", "read-ahead KiB", "llama-server tok/s",
        "Bevy tok/s", "ratio", "s per token (theirs, ours)", "s to first token (theirs, ours)"]


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def draw(results, peer):
    """Bars of both engines' median throughput at every point, as SVG."""
    points = {}
    for result in results:
        key = (result["cache"], result["requests"], result["read_ahead_kib"])
        points.setdefault(key, {}).setdefault(result["engine"], []).append(result["speed"])
    bars = [(f"{requests} at once", cache, statistics.median(speeds.get(peer, [0])),
             statistics.median(speeds.get("bevy", [0])))
            for (cache, requests, _), speeds in points.items()]
    top = max(max(bar[2:]) for bar in bars) * 1.15 or 1
    width, height, left, base = 74 * len(bars) + 40, 280, 24, 226
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" '
             'fill="#808080">',
             f'<text x="{left}" y="16">tokens per second, all requests together: '
             '<tspan fill="#8a7a6a" font-weight="bold">llama-server</tspan> and '
             '<tspan fill="#3b82c4" font-weight="bold">Bevy</tspan></text>']
    for i, (name, cache, theirs, ours) in enumerate(bars):
        x = left + 74 * i
        for offset, value, colour in ((0, theirs, "#8a7a6a"), (28, ours, "#3b82c4")):
            tall = 190 * value / top
            lines.append(f'<rect x="{x + offset}" y="{base - tall:.1f}" width="26" '
                         f'height="{tall:.1f}" fill="{colour}"/>')
            lines.append(f'<text x="{x + offset + 13}" y="{base - tall - 4:.1f}" '
                         f'text-anchor="middle">{value:.2g}</text>')
        lines.append(f'<text x="{x + 27}" y="{base + 18}" text-anchor="middle">{name}</text>')
        lines.append(f'<text x="{x + 27}" y="{base + 34}" text-anchor="middle">cache {cache}'
                     '</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def headline(options, queue):
    machine = (f"{processor()}, {os.cpu_count()} cores, "
               f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB, "
               f"Linux {platform.release()}")
    disk = read_text(queue.parent / "device/model", read_text(queue.parent / "uevent", "disk")) \
        if queue else "unknown disk"
    disk = (re.search(r"DEVNAME=(\S+)", disk) or re.search(r"(.*)", disk)).group(1)
    link = json.loads(output_of(BEVY, "inspect", "-m", options.model, "--json", "-np", 1, "-c",
                                options.context, "--expert-cache", "rest"))["link"]
    peer = re.search(r"version: (.*)", output_of(options.llama_server, "--version"))
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine, "disk": disk,
            "disk_bytes_per_second": link["bytes_per_second"],
            "model": str(options.model.name), "model_bytes": options.model.stat().st_size,
            "bevy": output_of(BEVY, "--version"),
            "llama_server": peer.group(1) if peer else "unknown"}


def show(options, peers):
    """Tables and a picture of earlier results, ordered by cache, then requests."""
    points = {}
    for source in options.sources:
        for result in json.loads(source.read_text())["results"]:
            cache = float(result["cache"].rstrip("%"))
            key = (cache, result["requests"], result["read_ahead_kib"])
            points.setdefault(key, []).append(result)
    print_row(HEAD)
    print_row(["---:"] * len(HEAD))
    for (_, requests, ahead), results in sorted(points.items()):
        for peer in peers:
            print_row(row_of(results, requests, results[0]["cache"], results[0]["limit"], peer,
                             ahead))
    if options.plot:
        options.plot.write_text(draw([r for _, rs in sorted(points.items()) for r in rs], peers[0]))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", metavar="JSON",
                        help="measure nothing: table and picture of what --json wrote before")
    parser.add_argument("--prompts", type=Path, help="one per line; default: letters")
    parser.add_argument("--requests", default="1,2,4,8,16")
    parser.add_argument("--caches", default="25%,50%,75%")
    parser.add_argument("--peer", default="best", help="best, default or both")
    parser.add_argument("--read-ahead", default="", help="KiB, a list; default: as it is")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12, help="least length of the window")
    parser.add_argument("--seconds-max", type=float, default=60)
    parser.add_argument("--warmup", type=float, default=6, help="least seconds before the window")
    parser.add_argument("--warmup-max", type=float, default=60)
    parser.add_argument("--warmup-tokens", type=int, default=2, help="per request")
    parser.add_argument("--context", type=int, default=1024, help="tokens per request")
    parser.add_argument("--predict", type=int, default=900)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bevy-flags", default="", help="more flags for bevy serve")
    parser.add_argument("--llama-server", default="llama-server")
    parser.add_argument("--strict", action="store_true", help="fail where tokens differ (replay)")
    parser.add_argument("--json", type=Path, help="write all results there")
    parser.add_argument("--plot", type=Path, help="draw both throughputs there (SVG)")
    options = parser.parse_args()
    peers = ["best", "default"] if options.peer == "both" else [options.peer]
    if options.sources:
        return show(options, peers)
    if not options.model:
        parser.error("--model is needed")
    if not shutil.which(options.llama_server):
        print(f"{options.llama_server} is not installed", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("needs root: memory cgroups, and dropping the page cache", file=sys.stderr)
        return 2
    prompts = ([line for line in options.prompts.read_text().splitlines() if line]
               if options.prompts else [chr(97 + i) for i in range(26)])
    queue = disk_of(options.model)
    ahead_before = read_text(queue / "read_ahead_kb") if queue else "unknown"
    about = headline(options, queue)
    print("; ".join(f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}"
                    for name, value in about.items()) + "\n")
    print_row(HEAD)
    print_row(["---:"] * len(HEAD))
    everything, different = [], {}
    try:
        for cache in options.caches.split(","):
            for requests in map(int, options.requests.split(",")):
                limit = plan_limit(options, requests, cache)
                results = []
                for ahead in options.read_ahead.split(","):
                    if ahead and queue:
                        (queue / "read_ahead_kb").write_text(ahead)
                    here = []
                    for _ in range(options.rounds):
                        for engine in ["bevy", *peers]:
                            here.append(run(options, prompts, requests, cache, limit, engine))
                            here[-1]["read_ahead_kib"] = ahead or ahead_before
                    for peer in peers:
                        print_row(row_of(here, requests, cache, limit, peer,
                                         ahead or ahead_before))
                    results += here
                if parted(results):
                    different[f"{cache}, {requests} requests"] = parted(results)
                everything += results
    finally:
        if queue and options.read_ahead:
            (queue / "read_ahead_kb").write_text(ahead_before)
    if options.plot:
        options.plot.write_text(draw(everything, peers[0]))
    if options.json:
        for result in everything:
            result["tokens"] = [len(tokens) for tokens in result["tokens"]]
        options.json.write_text(json.dumps({**about, "results": everything}, indent=1) + "\n")
    print()
    if not different:
        print("All requests had the same tokens in all runs of both engines.")
    for where, places in different.items():
        print(f"{where}: tokens differ, from (request, token) {places}")
    return 1 if different and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
