"""A bar that shows how many prompts are done."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from . import _check as check


def on_end(use_tqdm: bool | Callable[..., Any], total: int) -> Callable[[int], None] | None:
    """What is called after each prompt; None: there is no bar."""
    make = use_tqdm if callable(use_tqdm) else _tqdm(check.boolean("generate", "use_tqdm", use_tqdm))
    if make is None:
        return None
    bar = make(total=total, desc="Processed prompts")
    n_done = 0

    def show(_: int) -> None:
        nonlocal n_done
        n_done += 1
        bar.update(1)
        if n_done == total:
            bar.close()

    return show


def _tqdm(is_shown: bool) -> Callable[..., Any] | None:
    """What makes bars, on a terminal, if tqdm is installed."""
    if not is_shown or sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None
