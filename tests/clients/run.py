#!/usr/bin/env python3
"""Runs the clients' tests: `tests/clients/run.py [LLMRT]`.

Installs the clients below target/clients, starts the server with the embedded model as `stories`, the scripted model, and a
store with `tales`, and runs `test_*.py` and `*.test.mjs`. Ends with 1 if a test fails. What is missing on this machine is
printed, is a line of the file that TESTS_SKIPPED names, and is no failure."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import scripted
import server

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACE = ROOT / "target/clients"
# Seconds after which tests that hang are a failure.
LIMIT = 900
NPM = ["npm", "ci", "--loglevel", "error", "--no-audit", "--no-fund", "--ignore-scripts"]


def skipped(why):
    print(f"skipped: {why}")
    if os.environ.get("TESTS_SKIPPED"):
        with open(os.environ["TESTS_SKIPPED"], "a") as list:
            list.write(why + "\n")


def succeeds(command, **options):
    return subprocess.run(list(map(str, command)), **options).returncode == 0


def installed(folder, pinned, *commands, **options):
    """Runs the commands unless they succeeded before with the same versions; whether the folder has them now."""
    mark = folder / "installed.txt"
    if mark.is_file() and mark.read_text() == pinned.read_text():
        return True
    if not all(succeeds(command, **options) for command in commands):
        return False
    mark.write_text(pinned.read_text())
    return True


def python():
    """The interpreter that has the clients; None where they cannot be installed."""
    folder, pinned = PLACE / "venv", HERE / "requirements.txt"
    interpreter = folder / "bin/python"
    create = [sys.executable, "-m", "venv", "--clear", folder]
    install = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
               "-r", pinned]
    if installed(folder, pinned, create, install):
        return interpreter
    skipped("clients in Python: venv or the package registry is missing")
    return None


def node():
    """The folder that has the clients; None where they cannot be installed."""
    folder, pinned = PLACE / "node", HERE / "package-lock.json"
    if not shutil.which("node") or not shutil.which("npm"):
        skipped("clients in JavaScript: node or npm is missing")
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for file in ["package.json", "package-lock.json", *(path.name for path in HERE.glob("*.mjs"))]:
        shutil.copy(HERE / file, folder / file)
    if installed(folder, pinned, NPM, cwd=folder):
        return folder
    skipped("clients in JavaScript: the package registry is missing")
    return None


def program():
    """The program under test: the argument, or a build of this tree."""
    if len(sys.argv) > 1:
        return str(Path(sys.argv[1]).resolve())
    subprocess.run(["cargo", "build", "--locked", "-p", "llmrt-cli"], cwd=ROOT, check=True)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/llmrt")


def tales(place):
    """Puts the embedded model into the store as `tales`, with a template for chats."""
    template = "Once upon a time, there was {{ messages[-1].content }} named"
    Path(place, "Modelfile").write_text(f"FROM {ROOT}/cli/assets/stories.gguf\nTEMPLATE {template}\n")
    subprocess.run([os.environ["TESTS_PROGRAM"], "create", "tales", "-f", f"{place}/Modelfile"], check=True)


def main():
    interpreter, folder = python(), node()
    if not interpreter and not folder:
        return 0
    with tempfile.TemporaryDirectory() as place:
        scripted.write(f"{place}/scripted.gguf")
        os.environ.update(
            TESTS_PROGRAM=program(), TESTS_SCRIPTED=f"{place}/scripted.gguf", LLMRT_MODELS=f"{place}/models")
        tales(place)
        models = [f"stories={ROOT}/cli/assets/stories.gguf", f"scripted={place}/scripted.gguf"]
        with server.serve(*models) as url:
            os.environ["TESTS_URL"] = url
            results = []
            if interpreter:
                # Clients keep their connections to servers that a test ended.
                quiet = ["-W", "ignore::ResourceWarning"]
                results.append(succeeds([interpreter, *quiet, "-m", "unittest", "discover", "-s", HERE], timeout=LIMIT))
            if folder:
                tests = sorted(path.name for path in HERE.glob("*.test.mjs"))
                results.append(succeeds(["node", "--test", *tests], cwd=folder, timeout=LIMIT))
    return 0 if all(results) else 1


sys.exit(main())
