"""Answers in server-sent events: what of them a client has, so that another replica can go on where one was lost."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from typing import Any

# Routes whose answers go on after tokens that are known.
_RESUMABLE = ("/v1/completions", "/v1/chat/completions")


class Resumable:
    """The request for one streamed text, and the events of its answer that were relayed."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = {**fields, "return_token_ids": True}
        self._has_ids = bool(fields.get("return_token_ids"))
        # Another replica draws the same numbers.
        if fields.get("seed") in (None, -1):
            self._fields["seed"] = random.getrandbits(63)
        # The stream repeats the tokens that the request has.
        self._given: list[int] = list(fields.get("resume_token_ids") or [])
        self._known: list[int] = []
        self._n_relayed = 0
        self.is_whole = False
        self._shared: dict[str, Any] = {}

    @classmethod
    def read(cls, path: str, body: bytes) -> Resumable | None:
        """That of a route's body; None: it is another request, whose answer cannot go on elsewhere."""
        if path.partition("?")[0] not in _RESUMABLE:
            return None
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or not fields.get("stream") or fields.get("use_beam_search"):
            return None
        if not isinstance(fields.get("resume_token_ids") or [], list):
            return None
        is_one = all(fields.get(name) in (None, 1) for name in ("n", "best_of"))
        prompt = fields.get("prompt")
        is_several = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
        # Known tokens have no log-probabilities, and events with them would differ.
        has_logprobs = not any(fields.get("logprobs") is without for without in (None, False))
        return cls(fields) if is_one and not is_several and not has_logprobs else None

    def body(self) -> bytes:
        """What the next replica gets."""
        known = max(self._given, self._known, key=len)
        return json.dumps({**self._fields, **({"resume_token_ids": known} if known else {})}).encode()

    async def relay(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events that the client does not have yet."""
        n_seen = 0
        async for event in events(chunks):
            n_seen += 1
            if n_seen > self._n_relayed:
                # Counted first: who takes an event may be gone afterwards.
                self._n_relayed += 1
                yield self._read(event)

    def _read(self, event: bytes) -> bytes:
        """An event as the client gets it; keeps its tokens."""
        data = event.removeprefix(b"data: ")
        if not data.startswith(b"{"):
            self.is_whole = self.is_whole or data == b"[DONE]"
            return event + b"\n\n"
        chunk = json.loads(data)
        for name in ("id", "created"):
            if name in chunk:
                # Those of the first replica.
                chunk[name] = self._shared.setdefault(name, chunk[name])
        for choice in chunk.get("choices", []):
            self._known += choice.get("token_ids", [])
            if not self._has_ids:
                choice.pop("token_ids", None)
                choice.pop("prompt_token_ids", None)
        if not self._has_ids:
            chunk.pop("prompt_token_ids", None)
        return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Events without their ends, from bytes that are cut anywhere."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for event in whole:
            yield event
