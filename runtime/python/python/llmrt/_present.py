"""Which devices and plugins a machine has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import _llmrt
from ._args import paths


@dataclass(frozen=True)
class Device:
    """A device.

    Attributes:
        name: What `LLM(devices=…)` takes: cpu, cuda:0.
        kind: cpu, gpu, npu, …
        description: Its marketing name.
        plugin: Its plugin.
        memory_total: Bytes; 0: unknown.
        memory_free: Bytes; None: unknown.
        unused: Why it is not used, unless it is.
    """

    name: str
    kind: str
    description: str
    plugin: str
    memory_total: int
    memory_free: int | None
    unused: str | None


@dataclass(frozen=True)
class Plugin:
    """A file that may be a plugin.

    Attributes:
        file: Its path; None: the one that is part of the package.
        state: loaded, rejected or skipped.
        name: Its name, if it is loaded.
        version: Its version, if it is loaded.
        reason: Why it is not loaded.
    """

    file: str | None
    state: str
    name: str | None
    version: str | None
    reason: str | None


def devices(
    plugins: Sequence[str | os.PathLike[str]] = (), plugin_options: Mapping[str, str] | None = None
) -> list[Device]:
    """All devices, the preferred ones first, the CPU last.

    >>> import llmrt
    >>> llmrt.devices()[-1].name
    'cpu'
    """
    rows = _llmrt.devices(paths("devices", plugins), dict(plugin_options or {}))
    return [Device(*row) for row in rows]


def plugins(
    plugins: Sequence[str | os.PathLike[str]] = (), plugin_options: Mapping[str, str] | None = None
) -> list[Plugin]:
    """All files that may be plugins, and why each is in use or not.

    >>> import llmrt
    >>> llmrt.plugins()[0].name
    'cpu'
    """
    rows = _llmrt.plugins(paths("plugins", plugins), dict(plugin_options or {}))
    return [Plugin(None if row[0] is None else os.fspath(row[0]), *row[1:]) for row in rows]
