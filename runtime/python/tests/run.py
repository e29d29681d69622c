#!/usr/bin/env python3
"""Tests the Python package in a clean environment: `runtime/python/tests/run.py WHEEL|LIBRARY [ARGUMENT…]`.

A wheel is installed with pip (`cargo ci wheel` builds one). A library, which cargo has built (`target/debug/lib_llmrt.so`), is
installed by copying it with the package's Python files: the same tests without a second build. Further arguments are
pytest's. What is missing on this machine is printed, is a line of the file that TESTS_SKIPPED names, and is no failure."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLACE = ROOT / "target/python"
PACKAGES = ["numpy", "pytest"]


def skipped(why):
    print(f"skipped: {why}")
    if os.environ.get("TESTS_SKIPPED"):
        with open(os.environ["TESTS_SKIPPED"], "a") as list:
            list.write(why + "\n")


def succeeds(*command, **options):
    return subprocess.run(list(map(str, command)), **options).returncode == 0


def install(file, place, packages):
    """Installs a wheel, or a library beside the package's files, into an environment."""
    pip = [place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    if not succeeds(*pip, *packages):
        return False
    if file.suffix == ".whl":
        return succeeds(*pip, "--force-reinstall", "--no-deps", file)
    paths = {"base": place, "platbase": place}
    folder = Path(sysconfig.get_path("platlib", "venv", paths)) / "llmrt"
    shutil.copytree(HERE.parent / "python/llmrt", folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(file, folder / "_llmrt.abi3.so")
    return True


def main(about=__doc__, place=PLACE, packages=PACKAGES, tests=HERE):
    """Runs a folder of tests in an environment that is made new."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        print(about, file=sys.stderr)
        return 2
    if sys.version_info < (3, 10):
        skipped("the Python package: Python 3.10 is missing")
        return 0
    shutil.rmtree(place, ignore_errors=True)
    if not succeeds(sys.executable, "-m", "venv", place) or not install(Path(sys.argv[1]).resolve(), place, packages):
        skipped("the Python package: venv or the package registry is missing")
        return 0
    # Elsewhere, so that only what is installed can be imported.
    command = [place / "bin/python", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", HERE, *sys.argv[2:]]
    paths = [] if any(Path(word.split("::")[0]).exists() for word in sys.argv[2:]) else [tests]
    return subprocess.run(list(map(str, [*command, *paths])), cwd=place).returncode


if __name__ == "__main__":
    sys.exit(main())
