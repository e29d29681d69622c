"""The ingress: takes requests over HTTP, and relays them to replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
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


class Ingress:
    """Ray constructs it on nodes, and calls it with each request."""

    def __init__(self, replicas: DeploymentHandle, args: AppArgs, block_size: int) -> None:
        self._replicas = replicas
        self._queue_time, self._retry_time = args.queue_time, args.retry_time
        self._block_size = block_size
        self._tokenizer = Tokenizer.from_file(args.model)

    async def __call__(self, request: Request) -> Response:
        path, method = request.scope["path"].removeprefix(request.scope.get("root_path", "")), request.method
        headers = [(name, value) for name, value in request.headers.raw if name not in _OF_CONNECTION]
        if method == "GET" and path == "/metrics":
            return Response(await self._metrics(headers), media_type="text/plain; version=0.0.4")
        if method not in ("GET", "HEAD", "OPTIONS") and path not in _COMPUTE:
            message = f"{method} {path} is not a route of a cluster: models are those that it was started with"
            return Response(error_body(message, "not_found"), 404, media_type="application/json")
        body = await request.body()
        hashes = await tokenized(len(body), self._hashes, path, body)
        where = f"{path}?{request.url.query}" if request.url.query else path

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
        """The names of the prompt's blocks; none where it is not one prompt of text."""
        try:
            fields = json.loads(body) if path in _COMPUTE else None
            ids = self._tokens(path, fields) if isinstance(fields, dict) else []
            return self._tokenizer.block_hashes(ids, fields.get("cache_salt") or "", self._block_size) if ids else []
        except (Error, AttributeError, TypeError, ValueError):
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
            is_open = fields.get("add_generation_prompt", True)
            return self._tokenizer.apply_chat_template(
                messages, tools=fields.get("tools"), add_generation_prompt=is_open, **more
            )
        return []

    async def _metrics(self, headers: Headers) -> str:
        """Those of all replicas."""
        try:
            answers = self._replicas.broadcast("metrics", headers)
            found = await answers.results_async(timeout_s=_METRICS_TIME, return_exceptions=True)
        except (RayServeException, TimeoutError):
            found = []
        # A replica that is lost at this moment has none.
        return merge(dict(answer for answer in found if isinstance(answer, tuple)))
