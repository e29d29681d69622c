"""The abuse suite of `llmrt serve`: `python tests/abuse/run.py PROGRAM [--short] [--stages a,b] [--requests N] [--minutes M]`.

Prints a line per stage and ends with 1 at the first thing that must not happen. README.md has what must.
"""

import argparse
import http.client
import statistics
import sys
import tempfile
import time

import bodies
import load
import schema
import wire
from server import Failure, Server


def stages(program, requests, minutes, is_short):
    """(name, work) of each stage; the work returns what is printed."""
    small = ("-c", "256")
    long = ("-c", "4096")

    def on(server, work):
        with server:
            result = work(server)
            server.check_idle()
            return result

    few = 8 if is_short else 1
    return [
        ("schema", lambda: on(Server(program, *small), lambda s: f"{schema.run(s, max(requests // 100, 3))} requests")),
        ("bodies", lambda: on(Server(program, *small), lambda s: dict(bodies.fuzz(s, requests)))),
        ("wire", lambda: on(Server(program, *small), lambda s: dict(wire.fuzz(s, requests)))),
        ("store", lambda: with_store(program, requests // 10)),
        ("slow", lambda: on(Server(program, *long), lambda s: f"{load.slow(s, 32 // few, 20 / few)} answered meanwhile")),
        ("storm", lambda: on(Server(program, *long), lambda s: load.storm(s, 800 // few) or f"{800 // few} clients")),
        ("overflow", lambda: on(Server(program, *long, "--parallel", "2", "--max-queue", "6"),
                                lambda s: dict(load.overflow(s, 60 // few + 20)))),
        ("exhaust", lambda: on(Server(program, "-c", "384", "--kv-memory", "640KiB"),
                               lambda s: f"{load.exhaust(s, 32 // few + 8)} preemptions")),
        ("terminate", lambda: with_end(Server(program, *long, "--grace", "60"), 64 // few)),
        ("memory", lambda: on(Server(program, "-c", "384", MALLOC_ARENA_MAX="1"),
                              lambda s: memory_line(s, 60 * minutes, is_short))),
    ]


def with_store(program, requests):
    with tempfile.TemporaryDirectory() as folder, Server(program, "-c", "256", store=folder) as server:
        counts = bodies.fuzz(server, requests, seeds=bodies.STORE) + bodies.blobs(server, requests)
        server.check_idle()
        return dict(counts)


def with_end(server, n):
    with server:
        load.terminate(server, n)
        return f"{n} requests answered"


def memory_line(server, seconds, is_short):
    """The medians of the first and the last quarter after the warm-up. One arena: what several keep for themselves looks like
    growth for a long time, and is none."""
    samples, n = load.memory(server, seconds)
    quarter = max(len(samples) // 4, 1)
    first, last = statistics.median(samples[:quarter]), statistics.median(samples[-quarter:])
    growth = last / first - 1
    line = (f"{n} requests in {seconds:.0f} s: {first / 1024:.0f} KiB after warm-up, {last / 1024:.0f} KiB at the end ({growth:+.1%}),"
            f" {min(samples) >> 10} to {max(samples) >> 10} KiB at any time")
    # Half a minute has no warm-up worth the name: it only prints.
    if not is_short and abs(growth) > 0.02:
        raise Failure(f"memory is not flat within 2 %: {line}")
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the llmrt to test")
    parser.add_argument("--short", action="store_true", help="for CI: 300 requests a stage, half a minute of memory")
    parser.add_argument("--stages", help="names, separated by commas; all without it")
    parser.add_argument("--requests", type=int, help="malformed bodies, and connections (4000 each)")
    parser.add_argument("--minutes", type=float, help="of mixed load (10)")
    args = parser.parse_args()
    requests = args.requests or (300 if args.short else 4000)
    minutes = args.minutes or (0.5 if args.short else 10)
    every = stages(args.program, requests, minutes, args.short)
    chosen = args.stages.split(",") if args.stages else [name for name, _ in every]
    if unknown := set(chosen) - {name for name, _ in every}:
        parser.error(f"no such stage: {', '.join(unknown)}; there are {', '.join(name for name, _ in every)}")
    for name, work in every:
        if name not in chosen:
            continue
        started = time.monotonic()
        try:
            print(f"{name}: {work()} ({time.monotonic() - started:.1f} s)", flush=True)
        except (Failure, OSError, http.client.HTTPException) as e:
            print(f"{name}: FAILED: {e!r}" if not isinstance(e, Failure) else f"{name}: FAILED: {e}", flush=True)
            sys.exit(1)


if __name__ == "__main__":
    main()
