"""What can fail. Every exception has a `code` that programs compare, the `cause`, and a `remedy`.

>>> from llmrt import LLM, ModelError
>>> try:
...     LLM("no-such-model.gguf")
... except ModelError as e:
...     print(e.code)
model_file
"""

from collections.abc import Iterable, Mapping
from typing import Any


class Error(Exception):
    """A failure.

    Attributes:
        code: The failure's name, which stays the same between versions: ``prompt_too_long``.
        cause: What was found, and what was expected.
        remedy: What helps.
    """

    code: str
    cause: str
    remedy: str

    def __init__(self, cause: str, code: str = "error", remedy: str = "") -> None:
        super().__init__(cause, code, remedy)
        self.cause = cause
        self.code = code
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause} [{self.code}; {self.remedy}]" if self.remedy else self.cause


class ModelError(Error):
    """The model's file is absent or cannot be used."""


class DeviceError(Error):
    """A device, a plugin or a setting of one."""


class OutOfMemoryError(Error):
    """A device or the host has too little memory."""


class RequestError(Error, ValueError):
    """A prompt or a parameter that cannot be computed."""


class ClosedError(Error):
    """The engine was closed."""


class ForkedError(Error):
    """A model was open when the process was forked."""


def no_lora(found: object) -> None:
    """Refuses an adapter."""
    if found is not None:
        raise unsupported("generate", "lora_request", found, "merge the adapter into the model")


def refuse_lacking(
    where: str, lacking: Mapping[str, tuple[tuple[Any, ...], str]], values: Iterable[Any]
) -> None:
    """Refuses parameters of vLLM that llmrt lacks, but for values without effect.

    Args:
        where: What has the parameters.
        lacking: By name, the values without effect, and what to do in place of another one.
        values: In the same order.
    """
    for (name, (neutral, remedy)), found in zip(lacking.items(), values):
        if found not in neutral:
            raise unsupported(where, name, found, remedy)


def unsupported(where: str, name: str, found: object, remedy: str) -> RequestError:
    """The exception for a parameter of vLLM that llmrt lacks, with a value that has an effect."""
    cause = f"{where}: {name}={found!r} is not supported by llmrt"
    return RequestError(cause, "unsupported_param", remedy)
