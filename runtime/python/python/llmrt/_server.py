"""The routes of `llmrt serve` in this process."""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

from . import _check as check
from . import _inbox, _llmrt
from .errors import RequestError

Headers = list[tuple[bytes, bytes]]
Message = MutableMapping[str, Any]


class Server:
    """Models and their routes, those of OpenAI, Ollama, Anthropic and llama-server: an ASGI application.

    No address is listened on: `uvicorn` and other ASGI servers run it, frameworks mount it, `request` calls it. Requests of a
    model share its steps.

    >>> import asyncio, json
    >>> from llmrt import Server
    >>> async def story():
    ...     with Server("--ctx", "256") as server:  # the story model; else the path of a GGUF file first
    ...         body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    ...         async with await server.request("POST", "/v1/completions", body=body.encode()) as reply:
    ...             return reply.status, json.loads(await reply.read())["choices"][0]["finish_reason"]
    >>> asyncio.run(story())
    (200, 'length')
    """

    def __init__(self, *words: str | os.PathLike[str]) -> None:
        """Loads the first model; the others with their first request.

        Args:
            words: The arguments of `llmrt serve`: `Server("small=a.gguf", "large=b.gguf", "--ctx", "8192")`. Those of the
                address, of TLS and of the log have no effect.
        """
        self._native = _llmrt.Server([check.path("Server", f"word {i}", word) for i, word in enumerate(words)])
        self._finalizer = weakref.finalize(self, self._native.close)

    async def request(
        self, method: str, path: str, headers: Headers | None = None, body: bytes = b"", *, timeout: float | None = None
    ) -> Reply:
        """Calls a route; returns when the head of the answer is there.

        Args:
            method: `GET`, `POST`, …
            path: Path and query: `/v1/models`.
            headers: Names and values.
            body: All of it.
            timeout: Seconds until the head is there, else TimeoutError.
        """
        where = "Server.request"
        inbox = _inbox.of_loop()
        key = next(inbox.keys)
        fields = [(bytes(name), bytes(value)) for name, value in headers or []]
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise check.wrong(where, "body", body, "bytes")
        args = check.text(where, "method", method), check.text(where, "path", path), fields, bytes(body)
        reply = Reply(self._native.send(*args, inbox.mailbox, key), inbox, key)
        try:
            await asyncio.wait_for(reply._begin(), timeout)
        except BaseException:
            reply.close()
            raise
        return reply

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answers as an ASGI 3 application: https://asgi.readthedocs.io/en/latest/specs/www.html."""
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            remedy = "use HTTP: answers are streamed as server-sent events"
            raise RequestError(f"the scope is {scope['type']}: expected http", "not_supported", remedy)
        body = await _body(receive)
        if body is None:
            return
        answering = asyncio.ensure_future(self._answer(scope, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            # A client that is gone ends its request.
            for task in answering, leaving:
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, scope: Message, body: bytes, send: Callable[[Message], Awaitable[None]]) -> None:
        query = scope.get("query_string", b"")
        raw = scope.get("raw_path") or scope["path"].encode()
        path = (raw + b"?" + query if query else raw).decode("latin-1")
        async with await self.request(scope["method"], path, list(scope["headers"]), body) as reply:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            async for chunk in reply:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def block_hashes(self) -> list[int]:
        """The names of the KV blocks that the first model's prefix cache has, in no order: see `Tokenizer.block_hashes`."""
        return self._native.block_hashes()

    def stats(self) -> dict[str, int]:
        """Queues, KV cache and counters of the first model after its last step: see `AsyncEngine.stats`."""
        return self._native.stats()

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._native.is_open

    def close(self) -> None:
        """Ends all requests and frees the models. A second call does nothing."""
        self._native.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Reply:
    """The answer to a request. Its body is an async iterator of bytes; to leave it ends the request. ClosedError: the server was
    closed before all of it had come.

    Attributes:
        status: The code, such as 200.
        headers: Names in lower case, and values.
    """

    status: int
    headers: Headers

    def __init__(self, exchange: _llmrt.Exchange, inbox: _inbox.Inbox, key: int) -> None:
        self._exchange = exchange
        self._inbox = inbox
        self._key = key

    async def _begin(self) -> None:
        self.status, self.headers = await self._next()

    async def _next(self) -> Any:
        while (taken := self._exchange.take()) is None:
            await self._inbox.wait(self._key)
        return taken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(chunk := await self._next(), bytes):
            yield chunk

    async def read(self) -> bytes:
        """The rest of the body."""
        return b"".join([chunk async for chunk in self])

    async def json(self) -> Any:
        """The rest of the body, parsed."""
        return json.loads(await self.read())

    def close(self) -> None:
        """Ends the request."""
        self._exchange.close()
        self._inbox.waiters.pop(self._key, None)

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    """All of a request's body; None: the client left."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _left(receive: Callable[[], Awaitable[Message]]) -> None:
    """Waits until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
