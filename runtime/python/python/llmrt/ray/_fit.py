"""Whether a replica fits a node, before one is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click
import ray

from .. import _llmrt
from ..errors import ModelError, OutOfMemoryError
from ._args import AppArgs

# Flags of `llmrt serve` that `llmrt plan` has too: whether a value follows.
_SHARED = {
    **dict.fromkeys(["-c", "--ctx", "-b", "--batch", "--kv-type", "--block-size", "--parallel", "--kv-memory"], True),
    **dict.fromkeys(["--plugin", "--plugin-option", "--sparse", "--tensor-placement", "--split"], True),
    "--swa-full": False,
}
# Requests of a server that run at a time, where it has no --parallel.
_PARALLEL = "8"


def plan(args: AppArgs) -> dict[str, Any]:
    """What `llmrt plan --json` computes for a replica, on this machine."""
    _llmrt.Server.check(args.words_on("cpu"))
    # Of a flag that is given twice the last one counts.
    words = [*args.models, "--parallel", _PARALLEL, *_shared(args.serve_args)]
    found = _run(*words, "--backend", args.backend)
    is_elsewhere = args.kind in ("cuda", "cann") or bool(args.resources)
    if isinstance(found, str) and is_elsewhere and "there is no such device" in found:
        # This machine has no such device: its nodes do. The memory of the host is not known then.
        found = _run(*words, "--backend", "cpu")
        if isinstance(found, dict):
            found["process"] = 0
    if isinstance(found, str):
        raise ModelError(f"app: {found}", "model_file", "give a file that this machine and all nodes have")
    return found


def _run(*words: str) -> dict[str, Any] | str:
    """The plan, or what is wrong."""
    command = [sys.executable, "-m", "llmrt", "plan", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stderr.strip() or "llmrt plan gave no result"


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster; none where there is no cluster yet."""
    if ray.is_initialized():
        return ray.nodes()
    # `serve run` connects only after it has built the application; to connect here would leave out its settings.
    code = "import json, sys, ray; ray.init(sys.argv[1], log_to_driver=False); print(json.dumps(ray.nodes()))"
    command = click.get_current_context(silent=True)
    address = command.params.get("address") if command is not None else None
    done = subprocess.run([sys.executable, "-c", code, address or "auto"], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


def check(planned: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> None:
    """Raises where no node has the memory that a replica needs.

    Args:
        planned: That of `plan`.
        nodes: Those of `ray.nodes()`.
    """
    memory = [node["Resources"].get("memory", 0) for node in nodes if node.get("Alive", True)]
    needed, most = planned["process"], max(memory, default=0)
    if memory and needed > most:
        cause = f"app: a replica needs {needed / 2**30:.1f} GiB and the largest node has {most / 2**30:.1f} GiB"
        raise OutOfMemoryError(cause, "out_of_memory", "lower --ctx or --parallel in serve_args, or add a larger node")


def _shared(words: Iterable[str]) -> list[str]:
    """Those of a server's words that a plan takes."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in _SHARED:
            found.append(word)
            if _SHARED[name] and not equals:
                found += [value for value in [next(rest, None)] if value is not None]
    return found
