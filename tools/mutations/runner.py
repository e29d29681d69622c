"""Runs seeded mistakes: tools/cann/mutations.py and tools/cuda/mutations.py have the rows.

A row: a name, a file, a text that is in it once, what stands there instead, and the test that should fail, as `TARGET FILTER`.
Files are restored after each row, also on Ctrl-C. A test that fails, crashes or hangs has caught the mistake. Exit code 1 if one
survived, a text is not found once, a mistake does not compile, or a test fails without one.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds for one row, building included.
LIMIT = int(os.environ.get("LIMIT", "600"))


def main(mutations, package, folder, under=".") -> int:
    """Tries the rows that the command line names, all without names. Files are under a folder of the package's folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [row for row in mutations if not sys.argv[1:] or any(part in row[0] for part in sys.argv[1:])]
    if git("status", "--porcelain", "--", folder):
        print(f"{folder} has changes: commit them first, because its files are rewritten and restored")
        return 1
    src = ROOT / folder / under
    problems = [problem for problem in (misplaced(src, row) for row in rows) if problem]
    # What fails anyway proves nothing.
    tests = list(dict.fromkeys(row[4] for row in rows)) if not problems else []
    problems += [f"`{test}` is {found} without a mistake" for test in tests if (found := outcome(package, test)) != "SURVIVED"]
    if problems:
        print("\n".join(problems))
        return 1
    results = [apply(src, package, *row) for row in rows]
    n_caught = sum(result.startswith("caught") for result in results)
    print(f"{n_caught} of {len(rows)} caught")
    return 0 if n_caught == len(rows) else 1


def misplaced(src, row):
    name, file, text, _, _ = row
    n = (src / file).read_text().count(text)
    return None if n == 1 else f"{name}: the text is {n} times in {file}, expected once"


def apply(src, package, name, file, text, replacement, test):
    """The result of a test with a mistake in."""
    path = src / file
    before = path.read_text()
    try:
        path.write_text(before.replace(text, replacement))
        result = outcome(package, test)
    finally:
        path.write_text(before)
    print(f"{result:18} {name}: {file}, `{test}`", flush=True)
    return result


def outcome(package, test):
    """What became of `TARGET FILTER`: caught and how, SURVIVED, or why it is inconclusive."""
    target, of = test.split()
    command = ["cargo", "test", "-p", package, "--test", target, of]
    # A group of its own: a test that hangs is not cargo itself.
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )
    try:
        output, hangs = child.communicate(timeout=LIMIT)[0], False
    except subprocess.TimeoutExpired:
        hangs = True
        os.killpg(child.pid, signal.SIGKILL)
        output = child.communicate()[0]
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    if not re.search(r"^running [1-9]\d* tests?$", output, re.M):
        return "NO SUCH TEST" if "running 0 tests" in output else "DOES NOT COMPILE"
    if hangs:
        return "caught: hangs"
    if child.returncode == 0:
        return "SURVIVED"
    return "caught" if "test result: FAILED" in output else "caught: crashes"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
