"""What an application is built with: words of `serve run`, or `args` of a config file."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .. import _check as check
from ..errors import RequestError

# What a replica of a backend takes of a node, by Ray's names of resources.
_RESOURCES: dict[str, dict[str, Any]] = {
    "cpu": {},
    "cuda": {"num_gpus": 1},
    "cann": {"resources": {"NPU": 1}},
}
# Resources of Ray that have options of their own.
_OWN_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus"}


@dataclass
class AppArgs:
    """The arguments of `app`. All may be texts, as words of a command line are.

    Args:
        model: Path of a GGUF file, or a name in the store of `llmrt pull`, the same on every node. None: the story model.
        backend: Devices of a replica, as `llmrt serve --backend` takes them. `cuda` takes a GPU of Ray, `cann` an NPU.
        replicas: How many, or the fewest and the most: 2, "1-4" or {"min": 1, "max": 4}.
        num_cpus: Cores of a replica, its threads.
        resources: What a replica takes of a node, by Ray's names: {"GPU": 2} for two cards, {"NPU": 4}.
        target_requests: Requests of a replica, running and waiting, that its number is scaled for.
        max_requests: Most requests of a replica; more wait for one of any replica to end.
        max_body: Most bytes of a request.
        queue_margin: How many more requests than the least loaded a replica may have to be chosen for a cached prefix.
        grace: Seconds that running requests have when a replica is stopped.
        queue_time: Seconds that a request waits for a replica that takes it.
        retry_time: Seconds in which a request that was lost with its replica is tried again; 0: it is not.
        serve_args: More arguments of `llmrt serve`, a text or a list: "--ctx 8192 --api-key …".
    """

    model: str | None = None
    backend: str = "cpu"
    replicas: int | str | Mapping[str, int] = 1
    num_cpus: int = 1
    resources: Mapping[str, float] | None = None
    target_requests: int = 4
    max_requests: int = 64
    max_body: int = 16 << 20
    queue_margin: int = 4
    grace: float = 30
    queue_time: float = 60
    retry_time: float = 60
    serve_args: str | list[str] = ""

    @classmethod
    def read(cls, args: Mapping[str, Any]) -> AppArgs:
        """Those of a config file, checked."""
        known = {field.name for field in fields(cls)}
        for name in args:
            if name not in known:
                remedy = f"expected one of {', '.join(sorted(known))}"
                raise RequestError(f"app has no argument {name!r}", "bad_param", remedy)
        return cls(**args)

    def __post_init__(self) -> None:
        self.model = None if self.model is None else check.path("app", "model", self.model)
        self.backend = check.text("app", "backend", self.backend)
        self.min_replicas, self.max_replicas = _range(self.replicas)
        for name, least in [("num_cpus", 1), ("target_requests", 1), ("max_requests", 1), ("max_body", 1)]:
            setattr(self, name, check.whole("app", name, _number(getattr(self, name), int), least))
        self.queue_margin = check.whole("app", "queue_margin", _number(self.queue_margin, int))
        for name in ["grace", "queue_time", "retry_time"]:
            setattr(self, name, max(check.number("app", name, _number(getattr(self, name), float)), 0))
        if self.queue_time == 0:
            raise check.out_of_range("app", "queue_time", self.queue_time, "more than 0")
        if isinstance(self.resources, str):
            self.resources = _number(self.resources, json.loads)
        if self.resources is not None and not isinstance(self.resources, Mapping):
            raise check.wrong("app", "resources", self.resources, "a dict of numbers by Ray's names")
        words = shlex.split(self.serve_args) if isinstance(self.serve_args, str) else self.serve_args
        self.serve_args = list(check.texts("app", "serve_args", words) or [])

    @property
    def words(self) -> list[str]:
        """The arguments of `llmrt serve` in a replica."""
        return self.words_on(self.backend)

    @property
    def models(self) -> list[str]:
        """The model, unless it is the story model."""
        return [] if self.model is None else [self.model]

    def words_on(self, backend: str) -> list[str]:
        """The same with other devices."""
        flags = ["--threads", str(self.num_cpus), "--max-body", str(self.max_body)]
        return [*self.models, *flags, *self.serve_args, "--backend", backend]

    @property
    def kind(self) -> str:
        """The plugin's name."""
        return os.path.basename(self.backend.split(",")[0].split(":")[0])

    @property
    def actor_options(self) -> dict[str, Any]:
        """What a replica takes of a node."""
        options = {"num_cpus": self.num_cpus, **_RESOURCES.get(self.kind, {})}
        for name, n in (self.resources or {}).items():
            if name in _OWN_OPTIONS:
                options[_OWN_OPTIONS[name]] = n
            else:
                options["resources"] = {**options.get("resources", {}), name: n}
        return options


def _number(found: Any, kind: type) -> Any:
    """A number that is a text in a command line."""
    try:
        return kind(found) if isinstance(found, str) else found
    except ValueError:
        return found


def _range(found: Any) -> tuple[int, int]:
    """The fewest and the most replicas."""
    expected = 'a number of replicas, "1-4", or {"min": 1, "max": 4}'
    if isinstance(found, Mapping) and set(found) == {"min", "max"}:
        least, most = found["min"], found["max"]
    elif isinstance(found, str):
        least, dash, most = found.partition("-")
        least, most = _number(least, int), _number(most if dash else least, int)
    else:
        least = most = found
    for number in least, most:
        if not isinstance(number, int) or isinstance(number, bool):
            raise check.wrong("app", "replicas", found, expected)
    if not 1 <= least <= most:
        raise RequestError(f"app: replicas={found!r}: expected {expected}, from 1 on", "bad_param", "raise the number")
    return least, most
