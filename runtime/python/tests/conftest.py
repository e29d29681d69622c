"""Fixtures: the embedded model, loaded once. A test that hangs ends the run with the stacks of all threads."""

import asyncio
import faulthandler
from importlib.util import find_spec
from pathlib import Path

import pytest

import llmrt

ROOT = Path(__file__).resolve().parents[3]
STORIES = ROOT / "cli/assets/stories.gguf"
# `cluster.py` runs the tests of `llmrt.ray`.
collect_ignore = [] if find_spec("ray") else ["on_ray"]
# Seconds of one test that has no `pytest.mark.limit(SECONDS)`.
LIMIT = 180


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): the time that a test has")


@pytest.fixture(autouse=True)
def no_hang(request):
    marker = request.node.get_closest_marker("limit")
    faulthandler.dump_traceback_later(marker.args[0] if marker else LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def llm():
    with llmrt.LLM(STORIES) as llm:
        yield llm


@pytest.fixture
def engine():
    with llmrt.AsyncEngine(STORIES) as engine:
        yield engine


async def until_idle(engine):
    """Waits until no request has blocks."""
    for _ in range(500):
        stats = engine.stats()
        if stats["n_running"] == stats["n_waiting"] == stats["n_blocks_used"] == 0:
            return stats
        await asyncio.sleep(0.01)
    raise AssertionError(engine.stats())
