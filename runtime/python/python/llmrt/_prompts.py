"""What is generated after: texts, token ids, conversations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from . import _check as check
from .errors import RequestError, unsupported

_T = TypeVar("_T")

# Characters of a text from which on it is tokenized on a thread.
_LONG_TEXT = 1 << 14


class TextPrompt(TypedDict):
    """A text."""

    prompt: str


class TokensPrompt(TypedDict):
    """Token ids of the model's vocabulary."""

    prompt_token_ids: list[int]


async def tokenized(n_chars: int, work: Callable[..., _T], *args: Any) -> _T:
    """Runs work that tokenizes a text of so many characters: a long one on a thread, so that the loop goes on."""
    if n_chars < _LONG_TEXT:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(None, work, *args)


def as_list(prompts: Any) -> list[Any]:
    """One prompt or several, as a list."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if isinstance(prompts, (bytes, bytearray)) or not isinstance(prompts, Sequence):
        expected = "a string, a dict with prompt or prompt_token_ids, a list of token ids, or a list of these"
        raise check.wrong("generate", "prompts", prompts, expected)
    is_tokens = len(prompts) > 0 and all(isinstance(item, int) for item in prompts)
    return [list(prompts)] if is_tokens else list(prompts)


def read(prompt: Any, name: str = "prompt") -> tuple[str | None, list[int] | None]:
    """The text, or the token ids; a dict may have both."""
    where = "generate"
    if isinstance(prompt, str):
        return check.text(where, name, prompt), None
    if isinstance(prompt, Mapping):
        known = {"prompt", "prompt_token_ids", "cache_salt"}
        for key in prompt:
            if key not in known and prompt[key] is not None:
                remedy = "give prompt or prompt_token_ids; images, sounds and vectors are not taken"
                raise unsupported(where, f"{name}[{key!r}]", type(prompt[key]).__name__, remedy)
        text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        if text is None and ids is None:
            raise check.wrong(where, name, prompt, "a dict with prompt or prompt_token_ids")
        return (
            None if text is None else check.text(where, f"{name}['prompt']", text),
            None if ids is None else check.token_ids(where, f"{name}['prompt_token_ids']", ids),
        )
    if isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray)):
        return None, check.token_ids(where, name, prompt)
    raise check.wrong(where, name, prompt, "a string, a dict with prompt or prompt_token_ids, or a list of token ids")


def conversations(messages: Any) -> list[list[Any]]:
    """One conversation or several, as a list."""
    where = "chat"
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise check.wrong(where, "messages", messages, "a list of messages, or a list of such lists")
    if not messages:
        remedy = "give at least one message: {'role': 'user', 'content': '…'}"
        raise RequestError("chat: there are no messages", "chat_template", remedy)
    if isinstance(messages[0], Mapping):
        return [list(messages)]
    for i, one in enumerate(messages):
        if isinstance(one, (str, bytes, Mapping)) or not isinstance(one, Sequence):
            raise check.wrong(where, f"messages[{i}]", one, "a list of messages")
    return [list(one) for one in messages]


def as_json(messages: list[Any]) -> str:
    """The messages of a conversation for a template. Contents of several parts are one text, a line each."""
    flat = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise check.wrong("chat", f"messages[{i}]", message, "a dict with role and content")
        if not isinstance(message.get("role"), str):
            raise check.wrong("chat", f"messages[{i}]['role']", message.get("role"), "a string")
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(_part(f"messages[{i}]['content']", part) for part in content)
            message = {**message, "content": content}
        flat.append(message)
    return to_json("messages", flat)


def _part(name: str, part: Any) -> str:
    """The text of a part."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text":
        remedy = "give parts of the type text; images and sounds are not taken"
        raise unsupported("chat", name, kind, remedy)
    return check.text("chat", name, part.get("text"))


def to_json(name: str, value: Any) -> str:
    """JSON, for the native module."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as e:
        raise TypeError(f"chat: {name} cannot be written as JSON: {e}") from None
    return check.text("chat", name, text)
