#!/usr/bin/env python3
"""Decode rates of the package beside those of the Rust facade: `bench.py MODEL DECODE_RATE [PAIRS]`.

DECODE_RATE is the program of `cargo build --release -p llmrt --example decode_rate`. For one request (`LLM.generate`) and for
16 streams at once (`AsyncEngine.generate`) both compute the same tokens in turn; the table has medians and the median of
the pairs' ratios. Times are from before the first request to the last token. Both programs keep the model loaded, and only one
computes at a time."""

import asyncio
import statistics
import subprocess
import sys
import time

from llmrt import LLM, AsyncEngine, SamplingParams

N_TOKENS = 96


def params(n):
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


def prompt(i):
    return f"Story {i}: once upon a time"


class Facade:
    """The Rust program."""

    def __init__(self, program, model, n_streams):
        words = [program, model, str(n_streams), str(N_TOKENS)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class One:
    """A request by `LLM.generate`."""

    n_streams = 1

    def __init__(self, model):
        self.llm = LLM(model, max_model_len=512, max_num_seqs=1)

    def rate(self):
        began = time.monotonic()
        [output] = self.llm.generate(prompt(0), params(N_TOKENS))
        return len(output.outputs[0].token_ids) / (time.monotonic() - began)

    def close(self):
        self.llm.close()


class Streams:
    """Streams of `AsyncEngine.generate`."""

    n_streams = 16

    def __init__(self, model):
        self.engine = AsyncEngine(model, max_model_len=512, max_num_seqs=self.n_streams)

    def rate(self):
        return asyncio.run(self.all())

    async def all(self):
        began = time.monotonic()
        await asyncio.gather(*(self.read(i) for i in range(self.n_streams)))
        return self.n_streams * N_TOKENS / (time.monotonic() - began)

    async def read(self, i):
        async for output in self.engine.generate(prompt(i), params(N_TOKENS)):
            pass
        assert len(output.outputs[0].token_ids) == N_TOKENS

    def close(self):
        self.engine.close()


def compare(python, facade, pairs):
    """Rates of both in turn, the first of each left out."""
    rates = []
    for i in range(pairs + 1):
        order = [python, facade] if i % 2 else [facade, python]
        found = {side: side.rate() for side in order}
        rates.append((found[python], found[facade]))
    return rates[1:]


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    model, program = sys.argv[1:3]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 11
    print(f"| case | llmrt in Python, tok/s | facade in Rust, tok/s | ratio | of {pairs} pairs |")
    print("|---|--:|--:|--:|---|")
    for kind in [One, Streams]:
        python, facade = kind(model), Facade(program, model, kind.n_streams)
        rates = compare(python, facade, pairs)
        python.close()
        facade.close()
        ratios = sorted(a / b for a, b in rates)
        medians = [statistics.median(side) for side in zip(*rates)]
        middle = statistics.median(ratios)
        name = f"{kind.n_streams} x {N_TOKENS} tokens, {kind.__doc__.split('`')[1]}"
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {middle:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |")
    return 0


sys.exit(main())
