"""Requests whose replicas may be lost: the same again elsewhere, or the rest of a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from ._errors import error_end
from ._stream import Resumable

# An answer: its status and headers, then parts of its body.
Parts = AsyncIterator[Any]
# Seconds before the first retry, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0
# Replicas that a request may lose: one that ends its replicas does not end all.
_MOST_LOST = 8


class Lost(Exception):
    """The replica of a request was lost, or has no answer."""

    is_final = False


class NoReplica(Lost):
    """No replica took the request in time."""

    is_final = True


class Relay:
    """An answer that outlives its replicas.

    Attributes:
        status: The code.
        headers: Names in lower case, and values.
    """

    status: int
    headers: list[tuple[bytes, bytes]]

    def __init__(self, send: Callable[[bytes], Parts], path: str, body: bytes, retry_time: float) -> None:
        """Nothing is sent yet.

        Args:
            send: Sends a body to a replica; its iterator raises Lost where the replica is lost.
            path: The route.
            body: The request's.
            retry_time: Seconds after a loss, without a part of the answer, in which other replicas are tried.
        """
        self._send = send
        self._path, self._body = path, body
        self._stream = Resumable.read(path, body)
        self._retry_time = retry_time
        self._n_lost = 0
        self._lost_at: float | None = None
        self._wait = _FIRST_WAIT
        self._parts: Parts | None = None

    async def begin(self) -> AsyncIterator[bytes]:
        """The body, once status and headers are there. Raises Lost where no replica answers in time."""
        while True:
            try:
                self.status, self.headers = await self._head()
                if self._is_streamed():
                    return self._stream_on()
                # Nothing of it was relayed: a replica that is lost now is as one that was lost before.
                whole = [part async for part in self._parts]
                await self.close()
                return _iterate(whole)
            except Lost as e:
                if not await self._may_retry(e):
                    raise

    async def close(self) -> None:
        """Ends the request on its replica."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.aclose()

    def _is_streamed(self) -> bool:
        kind = dict(self.headers).get(b"content-type", b"")
        return kind.startswith((b"text/event-stream", b"application/x-ndjson"))

    async def _head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        await self.close()
        self._parts = self._send(self._body if self._stream is None else self._stream.body())
        try:
            return await anext(self._parts)
        except StopAsyncIteration:
            raise Lost("the replica ended without an answer") from None

    async def _stream_on(self) -> AsyncIterator[bytes]:
        """The body of a stream, from one replica after another."""
        has_begun = False
        try:
            while True:
                try:
                    parts = self._parts if self._stream is None else self._stream.relay(self._parts)
                    async for part in parts:
                        has_begun = True
                        self._lost_at, self._wait = None, _FIRST_WAIT
                        yield part
                    if self._stream is None or self._stream.is_whole:
                        return
                    raise Lost("the stream ended early")
                except Lost as e:
                    if self._stream is not None and self._stream.is_whole:
                        return
                    if (self._stream is None and has_begun) or not await self._go_on(e):
                        message = f"the replica was lost, and no other one goes on: {e}; send the request again"
                        yield error_end(self._path, message, "replica_lost")
                        return
        finally:
            await self.close()

    async def _go_on(self, why: Lost) -> bool:
        """Finds a replica that goes on with the stream; False: there is none in time."""
        while await self._may_retry(why):
            try:
                status, _ = await self._head()
                if status == self.status:
                    return True
            except Lost as e:
                why = e
        return False

    async def _may_retry(self, why: Lost) -> bool:
        """Waits before the next try, longer each time; False: too many replicas were lost, or too long ago."""
        now = time.monotonic()
        self._n_lost += 1
        self._lost_at = now if self._lost_at is None else self._lost_at
        if why.is_final or self._n_lost > _MOST_LOST or now - self._lost_at >= self._retry_time:
            return False
        await asyncio.sleep(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return True


async def _iterate(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
