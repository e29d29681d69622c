#!/usr/bin/env python3
"""Simulates a cluster: `runtime/python/cluster_sim.py [--replicas 100] [--load 0.7]` prints times to first token by routing policy.

Sessions of several turns begin with one of some shared texts, as system prompts are, and each turn repeats what was before. A
replica computes prompts one after another and decodes the texts that it has begun between them; its prefix cache keeps the
blocks that were used last. `prefix` is `llmrt.ray._policy`: the router has what each replica reported within the last second, and
what it has sent since. Queues are seen as they are. Times of steps: RATES."""

import argparse
import heapq
import importlib.util
import itertools
import random
from collections import OrderedDict, deque
from pathlib import Path

_spec = importlib.util.spec_from_file_location("policy", Path(__file__).parent / "python/llmrt/ray/_policy.py")
policy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(policy)

# Recorded on 2 cores of an EPYC (Zen 5), a 0.5B model in Q4_0 after 1000 tokens: tokens of prompts per second, and seconds of a step
# that decodes so many texts. `llmrt synth M.gguf --like qwen2.5-0.5b --type q4_0`, then `llmrt bench -m M.gguf -d 1000 -t 2 -r 3` with
# `-p 512 -n 0`, and with `-p 0 -n 64 -s N`, where a step takes N seconds over the rate.
RATES = {"prompt": 1053.0, "decode": {1: 0.00851, 2: 0.00944, 4: 0.01135, 8: 0.01545, 16: 0.03005}}
BLOCK = 16
REPORT_PERIOD = 1.0
# Blocks of a replica's prefix cache: 64 Ki tokens.
N_BLOCKS = 4096
MAX_DECODING = 16


def decode_time(n_texts):
    """Seconds of a step, between the measured numbers of texts."""
    return next(time for n, time in RATES["decode"].items() if n >= n_texts)


class Replica:
    def __init__(self):
        self.queue, self.decoding, self.cache = deque(), [], OrderedDict()
        # What the router takes to be in the cache.
        self.contents = policy.Contents()
        self.is_busy = False

    def n_requests(self):
        return len(self.queue) + len(self.decoding) + self.is_busy

    def use(self, names):
        """Puts blocks into the cache; returns how many of them were there from the beginning on."""
        n = policy.n_cached(names, self.cache)
        for name in names:
            self.cache[name] = None
            self.cache.move_to_end(name)
        while len(self.cache) > N_BLOCKS:
            self.cache.popitem(last=False)
        return n


def choose(kind, replicas, names, turn, chance, margin, now):
    queues = [replica.n_requests() for replica in replicas]
    if kind == "random":
        return chance.randrange(len(replicas))
    if kind == "round robin":
        return turn % len(replicas)
    order = chance.sample(range(len(replicas)), len(replicas))
    if kind == "least loaded":
        return min(order, key=lambda i: queues[i])
    contents = [replicas[i].contents for i in order]
    n_cached = [one.n_cached(names) for one in contents]
    first = order[policy.rank(n_cached, [queues[i] for i in order], list(map(len, contents)), margin)[0]]
    replicas[first].contents.sent(names, now)
    return first


class Session:
    """A conversation: each turn's prompt is all before it and a new text."""

    def __init__(self, chance, n_shared, ids):
        shared = min(int(chance.paretovariate(1.0)) - 1, n_shared - 1)
        self.names = [("shared", shared, i) for i in range(64)]
        self.id, self.chance, self.n_left = next(ids), chance, 1 + int(chance.expovariate(1 / 3))

    def next(self):
        """The blocks of the next prompt, and the tokens of its answer."""
        self.n_left -= 1
        start = len(self.names)
        self.names = self.names + [(self.id, i) for i in range(start, start + self.chance.randint(2, 12))]
        return self.names, self.chance.randint(32, 128)


def simulate(kind, n_replicas, load, n_requests, margin, seed=1):
    """Times to first token, sorted, and the share of prompt tokens that were cached."""
    chance = random.Random(seed)
    replicas, ids, events = [Replica() for _ in range(n_replicas)], itertools.count(), []
    order = itertools.count()
    # The load is of what replicas do without a cache: 1100 tokens of a prompt, and 80 decoded beside seven others.
    service = 1100 / RATES["prompt"] + 80 * decode_time(8) / 8
    rate = load * n_replicas / service
    times, n_tokens, n_cached, n_sent = [], 0, 0, 0
    push = lambda time, what: heapq.heappush(events, (time, next(order), what))
    push(0.0, ("arrive", Session(chance, 200, ids)))
    if kind == "prefix":
        for replica in replicas:
            push(chance.random() * REPORT_PERIOD, ("report", replica))
    while events and len(times) < n_requests:
        now, _, (what, *rest) = heapq.heappop(events)
        if what in ("arrive", "turn"):
            session = rest[0]
            if what == "arrive":
                push(now + chance.expovariate(rate / 4), ("arrive", Session(chance, 200, ids)))
            names, n_answer = session.next()
            replica = replicas[choose(kind, replicas, names, n_sent, chance, margin, now)]
            n_sent += 1
            replica.queue.append((now, names, n_answer, session))
            if not replica.is_busy:
                replica.is_busy = True
                push(now, ("step", replica))
        elif what == "report":
            replica = rest[0]
            replica.contents.report(replica.cache)
            replica.contents.forget(now - 2 * REPORT_PERIOD)
            push(now + REPORT_PERIOD, ("report", replica))
        else:
            replica = rest[0]
            time = now
            if replica.queue and len(replica.decoding) < MAX_DECODING:
                came, names, n_answer, session = replica.queue.popleft()
                hits = replica.use(names)
                time += (len(names) - hits) * BLOCK / RATES["prompt"]
                n_tokens, n_cached = n_tokens + len(names), n_cached + hits
                times.append(time - came)
                replica.decoding.append([n_answer, session])
            if replica.decoding:
                time += decode_time(len(replica.decoding))
                for text in replica.decoding:
                    text[0] -= 1
                for _, session in [text for text in replica.decoding if text[0] <= 0]:
                    if session.n_left > 0:
                        push(time + chance.expovariate(1 / 5), ("turn", session))
                replica.decoding = [text for text in replica.decoding if text[0] > 0]
            if replica.queue or replica.decoding:
                push(time, ("step", replica))
            else:
                replica.is_busy = False
    # Without the time in which caches fill.
    return sorted(times[len(times) // 5 :]), n_cached / n_tokens


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--replicas", type=int, default=100)
    args.add_argument("--load", type=float, default=0.7, help="of what the replicas do without a cache")
    args.add_argument("--requests", type=int, default=20000)
    args.add_argument("--margin", type=int, nargs="+", default=[4], help="queue_margin of the prefix policy, one or several")
    args = args.parse_args()
    kinds = [*(("prefix", margin) for margin in args.margin), ("least loaded", 0), ("round robin", 0), ("random", 0)]
    print("| policy | first token, median | p99 | from the cache |\n|---|--:|--:|--:|")
    for kind, margin in kinds:
        times, share = simulate(kind, args.replicas, args.load, args.requests, margin)
        at = lambda q: times[int(q * (len(times) - 1))]
        name = f"{kind}, margin {margin}" if kind == "prefix" else kind
        print(f"| {name} | {at(0.5):.2f} s | {at(0.99):.2f} s | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
