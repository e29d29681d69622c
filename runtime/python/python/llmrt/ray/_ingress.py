"""The ingress: takes requests over HTTP, and relays them to replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import ray.exceptions
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .._prompts import tokenized
from .._server import Headers
from .._tokenizer import Tokenizer
from ..errors import ClosedError, Error
from ._args import AppArgs
from ._errors import error_body
from ._metrics import merge
from ._relay import Lost, NoReplica, Relay

# What a request fails with whose replica is lost.
_LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.WorkerCrashedError,
    RayServeException,
    ClosedError,
)
# Routes that compute; the other ones with POST change the models of one machine.
_COMPUTE = frozenset(
    "/v1/completions /v1/chat/completions /v1/responses /v1/messages /v1/messages/count_tokens /v1/embeddings /v1/rerank "
    "/api/generate /api/chat /api/embed /api/embeddings /api/show /tokenize /detokenize /apply-template".split()
)
# Headers of a connection rather than of a message.
_OF_CONNECTION = frozenset([b"connection", b"content-length", b"host", b"keep-alive", b"transfer-encoding"])
# Seconds in which replicas give their metrics.
_METRICS_TIME = 5.0
# Times the largest body that are read of a larger one.
_MOST_DROPPED = 4
# Characters up to which a prompt's blocks are named: longer ones go to the shortest queue.
_MOST_CHARS = 1 << 20


class Ingress:
    """Ray constructs it on nodes, and calls it with each request."""

    def __init__(self, replicas: DeploymentHandle, args: AppArgs, block_size: int) -> None:
        self._replicas = replicas
        self._queue_time, self._retry_time = args.queue_time, args.retry_time
        self._block_size = block_size
        self._max_body = args.max_body
        self._tokenizer = Tokenizer.from_file(args.model)

    async def __call__(self, request: Request) -> Response:
        root, method = request.scope.get("root_path", ""), request.method
        path = request.scope["path"].removeprefix(root)
        headers = [(name, value) for name, value in request.headers.raw if name not in _OF_CONNECTION]
        if method == "GET" and path == "/metrics":
            return await self._metrics(headers)
        if method not in ("GET", "HEAD", "OPTIONS") and path not in _COMPUTE:
            message = f"{method} {path} is not a route of a cluster: models are those that it was started with"
            return Response(error_body(message, "not_found"), 404, media_type="application/json")
        body = await self._body(request)
        if body is None:
            message = f"the body has more than {self._max_body} bytes: shorten it, or raise max_body of the application"
            return Response(error_body(message, "too_large"), 413, media_type="application/json")
        hashes = await tokenized(len(body), self._hashes, path, body)
        # As it was sent: what is escaped in it is no query.
        where = (request.scope.get("raw_path") or request.scope["path"].encode()).decode("latin-1").removeprefix(root)
        if query := request.scope.get("query_string", b""):
            where += f"?{query.decode('latin-1')}"

        def send(body: bytes) -> AsyncIterator[Any]:
            return self._send(method, where, headers, body, hashes)

        relay = Relay(send, path, body, self._retry_time)
        try:
            parts = await relay.begin()
        except Lost as e:
            return Response(error_body(f"no replica answered: {e}", "no_replica"), 503, media_type="application/json")
        except BaseException:
            # A client that is gone ends its request.
            await relay.close()
            raise
        answer = StreamingResponse(parts, relay.status)
        answer.raw_headers = [(name, value) for name, value in relay.headers if name not in _OF_CONNECTION]
        return answer

    async def check_health(self) -> None:
        """Called by Ray in the loop of the requests: one that is stuck does not answer."""

    async def _body(self, request: Request) -> bytes | None:
        """All of a body; None: it is too large."""
        parts, n = [], 0
        async for part in request.stream():
            n += len(part)
            if n <= self._max_body:
                parts.append(part)
                continue
            # The rest is read and dropped, within limits: a client that still sends would not read the answer.
            parts.clear()
            if n > _MOST_DROPPED * self._max_body:
                break
        return b"".join(parts) if n <= self._max_body else None

    async def _send(
        self, method: str, path: str, headers: Headers, body: bytes, hashes: list[int]
    ) -> AsyncIterator[Any]:
        """An answer of the replica that the router chooses."""
        stream = self._replicas.options(stream=True).answer.remote(method, path, headers, body, hashes=hashes)
        try:
            # Ray waits without end where there is no replica, or all have as many requests as they may.
            await asyncio.wait_for(anext(stream), self._queue_time)
            async for part in stream:
                yield part
        except (asyncio.TimeoutError, StopAsyncIteration) as e:
            raise NoReplica("none took the request in time") from e
        except BackPressureError as e:
            raise Lost("all replicas are busy") from e
        except _LOST as e:
            raise Lost(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
        finally:
            # Without effect on one that has ended.
            stream.cancel()

    def _hashes(self, path: str, body: bytes) -> list[int]:
        """The names of the prompt's blocks; none where it is not one prompt of text, or a very long one."""
        if len(body) > _MOST_CHARS:
            return []
        try:
            fields = json.loads(body) if path in _COMPUTE else None
            ids = self._tokens(path, fields) if isinstance(fields, dict) else []
            return self._tokenizer.block_hashes(ids, fields.get("cache_salt") or "", self._block_size) if ids else []
        except (Error, AttributeError, TypeError, ValueError, RecursionError):
            # The replica refuses what is wrong.
            return []

    def _tokens(self, path: str, fields: dict[str, Any]) -> list[int]:
        prompt, messages = fields.get("prompt"), fields.get("messages")
        if path in ("/v1/completions", "/api/generate") and isinstance(prompt, str):
            return self._tokenizer.encode(prompt)
        if path == "/v1/completions" and isinstance(prompt, list) and all(isinstance(id, int) for id in prompt):
            return prompt
        if path in ("/v1/chat/completions", "/api/chat") and isinstance(messages, list):
            more = fields.get("chat_template_kwargs") or {}
            if not isinstance(more, Mapping):
                return []
            is_open = fields.get("add_generation_prompt", True)
            # The model's template: what a request names may be a file of this machine.
            return self._tokenizer.render(messages, None, fields.get("tools"), is_open, dict(more))[1]
        return []

    async def _metrics(self, headers: Headers) -> Response:
        """Those of all replicas."""
        try:
            answers = self._replicas.broadcast("metrics", headers)
            found = await answers.results_async(timeout_s=_METRICS_TIME, return_exceptions=True)
        except (RayServeException, TimeoutError):
            found = []
        # A replica that is lost at this moment has none.
        answered = [answer for answer in found if isinstance(answer, tuple)]
        for _, status, text in answered:
            if status != 200:
                return Response(text, status, media_type="application/json")
        texts = {name: text for name, _, text in answered}
        return Response(merge(texts), media_type="text/plain; version=0.0.4")
