"""A replica: a server in the process of an actor."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from typing import Any

from ray import serve

from .._server import Headers, Server


class Replica:
    """Has the routes of `llmrt serve`. Ray constructs it on a node, and calls it."""

    def __init__(self, words: list[str]) -> None:
        self._server = Server(*words)

    async def answer(
        self, method: str, path: str, headers: Headers, body: bytes, hashes: list[int] | None = None
    ) -> AsyncIterator[Any]:
        """None when it begins, the status and the headers of an answer, the parts of its body. To leave it ends the request.

        Args:
            method: `GET`, `POST`, …
            path: Path and query.
            headers: Names and values.
            body: All of it.
            hashes: Names of the prompt's blocks, for the router.
        """
        # The ingress waits for a replica only so long, and for the answer of one as long as it takes.
        yield None
        async with await self._server.request(method, path, headers, body) as reply:
            yield reply.status, reply.headers
            async for chunk in reply:
                yield chunk

    async def metrics(self, headers: Headers) -> tuple[str, int, str]:
        """The replica's name, the status, and Prometheus text or an error."""
        async with await self._server.request("GET", "/metrics", headers) as reply:
            text = (await reply.read()).decode()
            return serve.get_replica_context().replica_id.unique_id, reply.status, text

    async def record_routing_stats(self) -> dict[str, bytes]:
        """What the prefix cache has, for the router; Ray calls it again and again."""
        return {"blocks": array("Q", await self._block_hashes()).tobytes()}

    async def check_health(self) -> None:
        """Raises where the server is closed, and waits for a step that hangs; Ray starts another replica then."""
        await self._block_hashes()

    async def _block_hashes(self) -> list[int]:
        """Names of the blocks that are cached, after the step that is computed."""
        return await asyncio.get_running_loop().run_in_executor(None, self._server.block_hashes)

    def __del__(self) -> None:
        # None is there where the model could not be loaded.
        if hasattr(self, "_server"):
            self._server.close()
