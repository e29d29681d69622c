"""Types of arguments: each check returns the value, or raises TypeError with the argument's name and what was expected."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from .errors import RequestError


def wrong(where: str, name: str, found: object, expected: str) -> TypeError:
    return TypeError(f"{where}: {name} is {found!r} ({type(found).__name__}): expected {expected}")


def out_of_range(where: str, name: str, found: object, expected: str) -> RequestError:
    cause = f"{where}: {name} is {found!r}: expected {expected}"
    return RequestError(cause, "bad_param", f"give {name} a value of this range")


def boolean(where: str, name: str, found: Any) -> bool:
    if not isinstance(found, bool):
        raise wrong(where, name, found, "True or False")
    return found


def number(where: str, name: str, found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, Real):
        raise wrong(where, name, found, "a number")
    try:
        value = float(found)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or abs(value) > 3e38:
        raise out_of_range(where, name, found, "a finite number")
    return value


def whole(where: str, name: str, found: Any, least: int = 0, most: int = 2**31 - 1) -> int:
    if isinstance(found, bool) or not isinstance(found, Integral):
        raise wrong(where, name, found, "a whole number")
    value = int(found)
    if not least <= value <= most:
        raise out_of_range(where, name, found, f"{least} to {most}")
    return value


def optional_whole(where: str, name: str, found: Any, least: int = 0, most: int = 2**31 - 1) -> int | None:
    return None if found is None else whole(where, name, found, least, most)


def one_of(where: str, name: str, found: Any, expected: tuple[str, ...]) -> str:
    if text(where, name, found) not in expected:
        raise out_of_range(where, name, found, ", ".join(expected))
    return found


def text(where: str, name: str, found: Any) -> str:
    if not isinstance(found, str):
        raise wrong(where, name, found, "a string")
    try:
        found.encode()
    except UnicodeEncodeError as e:
        raise out_of_range(where, name, found, f"Unicode text without lone surrogates ({e.reason})") from None
    return found


def texts(where: str, name: str, found: Any) -> list[str]:
    """A string or several; None: none."""
    if found is None:
        return []
    if isinstance(found, str):
        return [text(where, name, found)]
    if not isinstance(found, Iterable) or isinstance(found, (bytes, dict)):
        raise wrong(where, name, found, "a string or a list of strings")
    return [text(where, f"{name}[{i}]", item) for i, item in enumerate(found)]


def token_ids(where: str, name: str, found: Any) -> list[int]:
    if isinstance(found, (str, bytes, dict)) or not isinstance(found, Iterable):
        raise wrong(where, name, found, "a list of token ids")
    return [whole(where, f"{name}[{i}]", item, 0, 2**32 - 1) for i, item in enumerate(found)]


def path(where: str, name: str, found: Any) -> str:
    if not isinstance(found, (str, os.PathLike)):
        raise wrong(where, name, found, "a path")
    return os.fsdecode(found)
