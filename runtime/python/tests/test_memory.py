"""Memory stays flat. TESTS_PYTHON_REQUESTS and TESTS_PYTHON_ROUNDS set how long that is observed: 1000 and 100 for a release."""

import asyncio
import gc
import os

import pytest

from llmrt import LLM, AsyncEngine, SamplingParams

REQUESTS = int(os.environ.get("TESTS_PYTHON_REQUESTS", 200))
ROUNDS = int(os.environ.get("TESTS_PYTHON_ROUNDS", 15))
# What the allocator's arenas and Python's caches may add after the first part of a run, in bytes.
SLACK = 6 << 20

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc")


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files():
    return len(os.listdir("/proc/self/fd"))


def threads():
    return len(os.listdir("/proc/self/task"))


def assert_flat(step, n):
    """The second half of n steps adds less than the slack."""
    for _ in range(n // 2):
        step()
    before = resident()
    for _ in range(n - n // 2):
        step()
    assert resident() - before < SLACK


def test_requests_leave_nothing(llm):
    params = SamplingParams(max_tokens=8, logprobs=2, prompt_logprobs=1, n=2)

    def step():
        llm.generate(["Once upon a time", "The cat"], params)
        llm.embed("The dog")

    assert_flat(step, REQUESTS // 3)
    stats = llm.stats()
    assert stats["n_running"] == stats["n_waiting"] == stats["n_blocks_used"] == 0


def test_streams_leave_nothing_whether_they_are_read_or_left():
    async def run(engine):
        async for _ in engine.generate("Once upon a time", SamplingParams(max_tokens=8)):
            pass
        async for _ in engine.generate("Once upon a time", SamplingParams(max_tokens=100)):
            break

    with AsyncEngine() as engine:
        loop = asyncio.new_event_loop()
        assert_flat(lambda: loop.run_until_complete(run(engine)), REQUESTS // 2)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        assert len(engine._streams) == 0


def test_models_that_are_closed_leave_nothing():
    def step():
        with LLM() as llm:
            llm.generate("Once upon a time", SamplingParams(max_tokens=4))

    step()
    before = (open_files(), threads())
    assert_flat(step, ROUNDS)
    assert (open_files(), threads()) == before
