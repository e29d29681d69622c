"""Requests whose replicas may be lost: the same again elsewhere, or the rest of a stream."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from ._stream import Resumable, error_event

# An answer: its status and headers, then parts of its body.
Parts = AsyncIterator[Any]
# Seconds before the first retry, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0


class Lost(Exception):
    """The replica of a request was lost, or has no answer."""


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
            retry_time: Seconds without a part of the answer after which no replica is tried any more.
        """
        self._send = send
        self._body = body
        self._stream = Resumable.read(path, body)
        self._retry_time = retry_time
        self._last = time.monotonic()
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
                await self._pause(e)

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
                        self._last, self._wait = time.monotonic(), _FIRST_WAIT
                        yield part
                    return
                except Lost as e:
                    if self._stream is None and has_begun:
                        for part in error_event(f"the replica was lost: {e}; send the request again", "replica_lost"):
                            yield part
                        return
                    if not await self._go_on(e):
                        for part in error_event(f"no replica went on in time: {e}", "replica_lost"):
                            yield part
                        return
        finally:
            await self.close()

    async def _go_on(self, why: Lost) -> bool:
        """Finds a replica that goes on with the stream; False: there is none in time."""
        while True:
            try:
                await self._pause(why)
                status, _ = await self._head()
                if status == self.status:
                    return True
                why = Lost(f"another replica answered with status {status}")
            except Lost as e:
                if time.monotonic() - self._last > self._retry_time:
                    return False
                why = e

    async def _pause(self, why: Lost) -> None:
        """Waits before the next try, longer each time; raises where there was no answer for too long."""
        if time.monotonic() - self._last > self._retry_time:
            raise why
        await asyncio.sleep(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


async def _iterate(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def error_body(message: str, code: str) -> bytes:
    """An answer in OpenAI's form."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()
