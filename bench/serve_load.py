#!/usr/bin/env python3
"""Clients of every kind against one server, and whether it is as before when they have gone.

Many clients at once, each of which does one thing after the other: whole replies, streams, going
away in the middle (while waiting, in the prompt, in the reply), reading slowly, wrong requests,
long prompts and too long ones, bytes that are no HTTP. The model is the demo model with a cache of
a few experts, so that requests wait for the disk too. Equal requests must get the same bytes,
every well-formed request an answer; afterwards slots, queue, file descriptors, threads and memory
must be what they were, and the server must end with 0 when it is asked to.

--short is what the tests run. --server takes another build of the program.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import socket
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tests" / "e2e"))
from server_process import LIMIT_S, ServerProcess, parse_events  # noqa: E402

MODEL = REPO / "models" / "bevy-tiny-moe-Q8_0.gguf"
PROMPTS = ("Once upon a time", "The moon is", "Tell me about the sea", "In the garden")
LONG_PROMPTS = ("The sea is wide. " * 120, "Once there was a fox. " * 100)  # most of the context
TOO_LONG_PROMPTS = ("word " * 3000, "sea " * 5000)


def body_of(kind, rng):
    long = rng.random() < 0.1
    return {"prompt": rng.choice(LONG_PROMPTS) if long else rng.choice(PROMPTS),
            "n_predict": 4 if long else rng.choice((4, 16, 40)), "seed": rng.randrange(3),
            "temperature": 0.8, "stream": kind != "whole", "cache_prompt": rng.random() < 0.7}


class Load:
    def __init__(self, server, seed):
        self.server = server
        self.seed = seed
        self.texts = collections.defaultdict(set)  # by request: every reply to it
        self.counts = collections.Counter()

    def raw(self, body, receive_buffer=None):
        """A connection that has sent a completion."""
        data = json.dumps(body)
        connection = socket.socket()
        connection.settimeout(LIMIT_S)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect(("127.0.0.1", self.server.port))
        connection.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           f"Content-Length: {len(data)}\r\n\r\n{data}".encode())
        return connection

    def well_formed(self, kind, rng):
        body = body_of(kind, rng)
        status, headers, reply = self.server.request("POST", "/completion", body)
        if status == 503:
            assert headers.get("Retry-After"), reply
            return "turned away"
        assert status == 200, (status, reply)
        if body["stream"]:
            text = "".join(event["content"] for event in parse_events(reply.decode()))
        else:
            text = json.loads(reply)["content"]
        request = {k: v for k, v in body.items() if k not in ("stream", "cache_prompt")}
        self.texts[tuple(sorted(request.items()))].add(text)
        return "answered"

    def goes_away(self, rng):
        body = dict(body_of("stream", rng), n_predict=100000, ignore_eos=True)
        if rng.random() < 0.3:
            body["prompt"] = rng.choice(LONG_PROMPTS)
        with self.raw(body) as connection:
            if rng.random() < 0.5:
                connection.recv(rng.choice((1, 300, 5000)))
        return "went away"

    def reads_slowly(self, rng):
        body = dict(body_of("stream", rng), n_predict=100, ignore_eos=True, n_probs=20)
        received = 0
        with self.raw(body, receive_buffer=4096) as connection:
            while piece := connection.recv(2048):
                received += len(piece)
                time.sleep(0.002)  # the client's slowness, not a wait for something
        assert received > 0
        return "read slowly"

    def wrong(self, rng):
        path, body = rng.choice((
            ("/completion", {"prompt": "x", "temperature": "hot"}), ("/completion", "{"),
            ("/completion", {"prompt": rng.choice(TOO_LONG_PROMPTS)}), ("/v1/chat/completions", {}),
            ("/nonsense", {}), ("/completion", {"prompt": "x", "grammar": "root ::= ("}),
            ("/completion", "[" * 100000)))
        status, _, reply = self.server.request("POST", path, body)
        if status == 503:  # a grammar is looked at last
            assert "grammar" in body, reply
            return "turned away"
        assert status in (400, 404), (status, reply)
        assert json.loads(reply)["error"]["message"]
        return "refused"

    def no_http(self, rng):
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.settimeout(LIMIT_S)
            try:
                connection.sendall(bytes(rng.randrange(256) for _ in range(200)) + b"\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
            except OSError:
                pass
        return "no HTTP"

    def control(self, rng):
        path = rng.choice(("/health", "/v1/models", "/slots", "/props"))
        status, _, reply = self.server.request("GET", path)
        assert status == 200, (status, reply)
        return "control"

    def client(self, number, actions):
        rng = random.Random(self.seed * 1000 + number)
        kinds = ([lambda r: self.well_formed("whole", r),
                  lambda r: self.well_formed("stream", r)] * 3
                 + [self.goes_away, self.reads_slowly, self.wrong, self.no_http, self.control])
        return collections.Counter(rng.choice(kinds)(rng) for _ in range(actions))

    def run(self, clients, actions):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(self.client, i, actions) for i in range(clients)]:
                self.counts.update(done.result())
        different = {request: texts for request, texts in self.texts.items() if len(texts) > 1}
        assert not different, f"equal requests got different texts: {different}"


def state(server):
    """What must be the same before and after: open files, threads, KiB of memory."""
    folder = f"/proc/{server.process.pid}"
    with open(folder + "/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file.read().splitlines())
    return {"files": len(os.listdir(folder + "/fd")), "threads": int(status["Threads"]),
            "kib": int(status["VmRSS"].split()[0])}


def wait_until_quiet(server, before):
    """Every slot idle, nothing queued or open, files and threads as before."""
    end = time.monotonic() + LIMIT_S
    while True:
        metrics, now = server.metrics(), state(server)
        busy = {name: metrics[name] for name in
                ("llamacpp:requests_processing", "llamacpp:requests_deferred",
                 "bevy:queue_length", "bevy:replies_open") if metrics[name] != 0}
        # The pool's threads and idle connections go after a few seconds without work. One of each
        # is this look itself.
        if not busy and now["files"] <= before["files"] and now["threads"] <= before["threads"]:
            return now
        if time.monotonic() > end:
            raise AssertionError(f"not quiet: {busy}, {before} -> {now}, {server.get('/slots')}")
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(REPO / "build/release/src/bevy"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--actions", type=int, default=40, help="of each client, in each round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-mib", type=float, default=24,
                        help="how much memory may grow from the first round to the last")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    if args.short:
        args.clients, args.actions, args.rounds = 24, 8, 2
    with ServerProcess(args.server, str(MODEL), "-np", "4", "-c", "4096", "--queue", "24",
                       "--expert-cache", "12%", "--metrics") as server:
        Load(server, 0).run(args.clients, 4)  # buffers and arenas get their size
        first = wait_until_quiet(server, {"files": 10**6, "threads": 10**6})
        baseline = None
        for number in range(args.rounds):
            load, began = Load(server, args.seed + number), time.monotonic()
            load.run(args.clients, args.actions)
            now = wait_until_quiet(server, baseline or {"files": 10**6, "threads": 10**6})
            baseline = baseline or settle(server)
            print(f"round {number + 1}: {time.monotonic() - began:.1f} s, {now}, "
                  f"{dict(sorted(load.counts.items()))}, {len(load.texts)} different requests")
        grown = (now["kib"] - first["kib"]) / 1024
        assert grown <= args.growth_mib, f"memory grew by {grown:.1f} MiB"
        assert server.stop() == 0
    print("as before: slots, queue, files, threads; memory "
          f"{grown:+.1f} MiB; equal requests, equal texts")


def settle(server):
    """The fewest files and threads that a quiet server has."""
    lowest, steady = state(server), 0
    while steady < 20:
        time.sleep(0.25)
        now = state(server)
        steady = steady + 1 if now["files"] >= lowest["files"] and \
            now["threads"] >= lowest["threads"] else 0
        lowest = {name: min(lowest[name], now[name]) for name in lowest}
    # One connection more while it is asked for its numbers.
    return {"files": lowest["files"] + 1, "threads": lowest["threads"] + 1, "kib": lowest["kib"]}


if __name__ == "__main__":
    main()
