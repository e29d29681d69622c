"""How an event loop hears of streams."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref

from . import _llmrt
from .errors import RequestError


class Inbox:
    """Streams of an event loop, of all engines and servers: the loop watches one socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self.mailbox = _llmrt.Mailbox()
        self.keys = itertools.count()
        self.waiters: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.mailbox.fileno(), self._on_news)

    async def wait(self, key: int) -> None:
        """Waits for news of a stream."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop():
            cause = "a stream is read in another event loop than the one that it was begun in"
            raise RequestError(cause, "other_loop", "read a stream to its end in one event loop")
        waiter = loop.create_future()
        self.waiters[key] = waiter
        await waiter

    def _on_news(self) -> None:
        for key in self.mailbox.take():
            waiter = self.waiters.pop(key, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)


_inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = weakref.WeakKeyDictionary()
_inboxes_lock = threading.Lock()


def of_loop() -> Inbox:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    with _inboxes_lock:
        inbox = _inboxes.get(loop)
        if inbox is None:
            inbox = _inboxes[loop] = Inbox(loop)
        return inbox
