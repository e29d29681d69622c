"""Docstrings, examples and types."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, STORIES

import llmrt

# Ray is not installed here: `cluster.py` tests what needs it.
MODULES = [name for _, name, _ in pkgutil.iter_modules(llmrt.__path__) if name not in ("__main__", "ray")]
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("name", ["", *MODULES])
def test_examples_of_docstrings(name):
    module = importlib.import_module(f"llmrt.{name}" if name else "llmrt")
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert outcome.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(f"llmrt.{name}")) if test.examples]
    assert len(found) >= 8


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path):
    ended = subprocess.run(
        [sys.executable, str(path), str(STORIES)], capture_output=True, text=True, timeout=170, env={**os.environ}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()


def test_every_public_name_has_a_docstring_and_a_type():
    for name in llmrt.__all__:
        value = getattr(llmrt, name)
        assert isinstance(value, str) or value.__doc__, name
    assert (Path(llmrt.__file__).parent / "py.typed").is_file()
    assert (Path(llmrt.__file__).parent / "_llmrt.pyi").is_file()


def test_the_stub_has_what_the_native_module_has():
    from llmrt import _llmrt

    stub = (Path(llmrt.__file__).parent / "_llmrt.pyi").read_text()
    for name in dir(_llmrt):
        if not name.startswith("__"):
            assert f"class {name}:" in stub or f"def {name}(" in stub, name
            members = [member for member in vars(getattr(_llmrt, name)) if not member.startswith("_")] if (
                isinstance(getattr(_llmrt, name), type)) else []
            assert all(f"def {member}(" in stub for member in members), (name, members)


def test_the_guide_runs():
    guide = (ROOT / "docs/guide/python.md").read_text()
    blocks = [block.split("```")[0] for block in guide.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        code = block.replace('"model.gguf"', repr(str(STORIES)))
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=170)
        assert ended.returncode == 0, (code, ended.stderr)
