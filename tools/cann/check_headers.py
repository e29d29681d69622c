"""Compares plugins/cann/include/acl.h with the runtime headers that the `torch-npu` wheel carries.

Functions by result and parameter types, constants by value. A function that the wheel lacks is reported; the objects and
operators of aclnn.h are in no wheel and are not looked at. Exit code 1 on a difference. Without the wheel it reports that
and passes: nothing is built from it.

    python3 tools/cann/check_headers.py [WHEEL]
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OURS = Path(__file__).resolve().parents[2] / "plugins/cann/include/acl.h"
PACKAGE = "torch-npu"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(sys.argv[1]) if len(sys.argv) > 1 else download(folder)
        if wheel is None:
            return 0
        theirs = "\n".join(headers(wheel))
    problems = compare(plain(OURS.read_text()), plain(theirs))
    for problem in problems:
        print(f"{OURS.name}: {problem}")
    return 1 if problems else 0


def download(folder):
    """The newest wheel; None, with a message, where it cannot be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    # Any Python's wheel will do: only its headers are read.
    pip += ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "-d", folder, PACKAGE]
    out = subprocess.run(pip, capture_output=True, text=True)
    wheels = list(Path(folder).glob("*.whl"))
    if out.returncode == 0 and wheels:
        return wheels[0]
    why = (out.stderr.strip().splitlines() or ["no wheel"])[-1]
    print(f"skipped: acl.h is not compared, because the wheel of {PACKAGE} cannot be had: {why}")
    return None


def headers(wheel):
    """Texts of the wheel's C headers of the runtime."""
    with zipfile.ZipFile(wheel) as files:
        names = [n for n in files.namelist() if re.search(r"/include/acl/(acl\w*|error_codes/\w+)\.h$", n)]
        # The C++ wrappers of the same names.
        names = [n for n in names if not n.endswith("acl_rt_api.h")]
        return [files.read(n).decode() for n in names]


def plain(text):
    """Without comments."""
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def compare(ours, theirs):
    """Sentences about what differs."""
    enums = set(re.findall(r"\}\s*(\w+)\s*;", theirs)) | set(re.findall(r"typedef\s+enum\s+(\w+)", theirs))
    wheel = {name: (result, kinds) for result, name, kinds in functions(theirs, r"\b(\w+)\s*\(([^()]*)\)\s*;")}
    table = ours[ours.index("typedef struct cann_acl {") : ours.index("} cann_acl;")]
    problems, n = [], 0
    for result, name, kinds in functions(table, r"\(\*(\w+)\)\(([^()]*)\)\s*;"):
        if name not in wheel:
            problems.append(f"{name} is not in the wheel")
            continue
        pairs = list(zip([result, *kinds], [wheel[name][0], *wheel[name][1]]))
        same = len(kinds) == len(wheel[name][1]) and all(a == b or is_number_of(a, b, enums) for a, b in pairs)
        if not same:
            problems.append(f"{name} takes {kinds} and gives {result}; the wheel has {wheel[name]}")
        n += same
    values = constants(theirs)
    for name, value in re.findall(r"#define\s+(ACL_\w+)\s+\(?(-?\w+)\)?", ours):
        if name in values and values[name] != int(value, 0):
            problems.append(f"{name} is {value}; the wheel has {values[name]}")
    known = sum(name in values for name in re.findall(r"#define\s+(ACL_\w+)\s", ours))
    print(f"{n} functions and {known} constants compared")
    return problems


def functions(text, pattern):
    """(result, name, parameter types) of each declaration."""
    for found in re.finditer(r"((?:const\s+)?\w+[\s*]+)" + pattern, text):
        result, name, parameters = found.groups()
        parts = [p for p in parameters.split(",") if p.strip() not in ("", "void")]
        yield kind(result, named=False), name, [kind(p) for p in parts]


def kind(text, named=True):
    """A type without its parameter's name: `void **devPtr` is `void**`."""
    text = re.sub(r"=.*", "", text).strip()
    if named:
        text = re.sub(r"(?<=[\s*])\w+(\[\d*\])?$", lambda m: "*" if m.group(1) else "", text)
    return re.sub(r"\s*\*\s*", "*", re.sub(r"\s+", " ", text)).strip()


def is_number_of(ours, theirs, enums):
    """Whether ours is the number that their enumeration is."""
    return ours == "int32_t" and theirs in enums


def constants(text):
    """Values of enumerators and macros."""
    values = {}
    for name, value in re.findall(r"(?:#define\s+|\bconst(?:expr)?\s+int(?:32_t)?\s+)(ACL\w+)[\s=]+\(?(-?\w+)\)?", text):
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)[uUlL]*", value):
            values[name] = int(value.rstrip("uUlL"), 0)
    for body in re.findall(r"enum\s*\w*\s*\{([^{}]*)\}", text):
        at = 0
        for part in body.split(","):
            found = re.match(r"\s*(\w+)\s*(?:=\s*(\S+))?", part)
            if not found:
                continue
            given = found.group(2)
            at = number(given, values) if given else at
            if at is None:
                break
            values[found.group(1)] = at
            at += 1
    return values


def number(text, values):
    """A literal, or what an earlier constant is."""
    try:
        return int(text.rstrip("uUlL"), 0)
    except ValueError:
        return values.get(text)


if __name__ == "__main__":
    sys.exit(main())
