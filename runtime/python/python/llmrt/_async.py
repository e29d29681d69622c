"""Requests that are streamed in an event loop."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
import weakref
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from . import _check as check
from . import _inbox, _llmrt, _prompts
from ._args import EngineArgs
from ._model import Model
from ._params import RequestOutputKind, SamplingParams
from ._tokenizer import Tokenizer
from .errors import ClosedError, RequestError, no_lora
from .outputs import EmbeddingOutput, EmbeddingRequestOutput, Origin, RequestOutput, request_output


class AsyncEngine(Model):
    """A model whose requests are streamed. One engine serves any number of event loops.

    >>> import asyncio
    >>> from llmrt import AsyncEngine, SamplingParams
    >>> async def story():
    ...     async with AsyncEngine() as engine:
    ...         params = SamplingParams(temperature=0, max_tokens=12)
    ...         async for output in engine.generate("Once upon a time", params, "story"):
    ...             pass
    ...         return output
    >>> output = asyncio.run(story())
    >>> output.finished, len(output.outputs[0].token_ids)
    (True, 12)
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **args: Any) -> None:
        """Loads a model; `EngineArgs` has the arguments. The loop waits for it."""
        self._start(EngineArgs(model, **args))

    def _start(self, args: EngineArgs) -> None:
        super().__init__(args)
        # Weak: a stream that is collected has aborted its request.
        self._streams: weakref.WeakValueDictionary[str, _llmrt.Stream] = weakref.WeakValueDictionary()

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> AsyncEngine:
        """Loads a model."""
        if not isinstance(engine_args, EngineArgs):
            raise check.wrong("from_engine_args", "engine_args", engine_args, "AsyncEngineArgs")
        engine = cls.__new__(cls)
        engine._start(engine_args)
        return engine

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: Any = None,
        trace_headers: None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The text that follows a prompt, as it grows. To leave the loop aborts the request. One event loop reads all of it.

        Args:
            prompt: A text, {"prompt": text}, {"prompt_token_ids": ids}, or a list of ids.
            sampling_params: How; its output_kind states what each output has. A slow reader gets several tokens at a time.
            request_id: A name for `abort`, which no other running request has; None: one is made.
            lora_request: None.
            trace_headers: None.
            priority: Smaller goes first.
        """
        params = SamplingParams() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise check.wrong("generate", "sampling_params", params, "SamplingParams")
        no_lora(lora_request)
        name = uuid.uuid4().hex if request_id is None else check.text("generate", "request_id", request_id)
        number = check.whole("generate", "priority", priority, -(2**31) + 1)
        text, ids = await self._read(prompt)
        task = params.to_native(self._seed(), priority=-number)
        kind = params.output_kind
        origin = Origin(name, text, ids, time.time())
        async with aclosing(self._stream(name, task, ids, kind)) as stream:
            async for taken in stream:
                yield request_output(taken, origin, self._tokenizer)

    async def embed(
        self, prompt: Any, request_id: str | None = None, *, normalize: bool = True
    ) -> EmbeddingRequestOutput:
        """The vector of a prompt."""
        name = uuid.uuid4().hex if request_id is None else check.text("embed", "request_id", request_id)
        _, ids = await self._read(prompt)
        task = {"normalize": check.boolean("embed", "normalize", normalize)}
        async with aclosing(self._stream(name, task, ids, RequestOutputKind.FINAL_ONLY)) as stream:
            async for taken in stream:
                return EmbeddingRequestOutput(name, EmbeddingOutput(taken[2][0]), ids)
        raise self.dead_error

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends a request, or several, with what there is; their last outputs have the finish reason abort. What has ended is left."""
        for name in check.texts("abort", "request_id", request_id):
            stream = self._streams.get(name)
            if stream is not None:
                stream.abort()

    async def get_tokenizer(self) -> Tokenizer:
        """Text and token ids."""
        return self._tokenizer

    async def check_health(self) -> None:
        """Raises ClosedError if the engine was closed."""
        self._native.stats()

    @property
    def is_running(self) -> bool:
        """Whether it takes requests."""
        return self.is_open

    @property
    def is_stopped(self) -> bool:
        """Whether it was closed."""
        return not self.is_open

    @property
    def errored(self) -> bool:
        """Whether it takes no requests any more."""
        return self.is_stopped

    @property
    def dead_error(self) -> ClosedError:
        """What calls raise then."""
        return ClosedError("the engine is closed, and its requests have ended", "closed", "load the model again")

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    async def _read(self, prompt: Any) -> tuple[str | None, list[int]]:
        text, ids = _prompts.read(prompt)
        n_chars = len(text) if ids is None and text is not None else 0
        return text, await _prompts.tokenized(n_chars, self._tokens, text, ids)

    async def _stream(
        self, name: str, task: dict[str, Any], ids: list[int], kind: RequestOutputKind
    ) -> AsyncGenerator[tuple[Any, ...], None]:
        """What the native module gives of a request, until it has ended."""
        if name in self._streams:
            cause = f"generate: a request named {name!r} is running"
            raise RequestError(cause, "duplicate_request", "give each request a name of its own")
        inbox = _inbox.of_loop()
        key = next(inbox.keys)
        only_end = kind is RequestOutputKind.FINAL_ONLY
        is_delta = kind is RequestOutputKind.DELTA
        stream = self._native.submit(task, ids, inbox.mailbox, key, only_end)
        self._streams[name] = stream
        try:
            while True:
                while (taken := stream.take(is_delta)) is None:
                    await inbox.wait(key)
                yield taken
                if taken[-1] is not None:
                    return
                # A reader that never waits leaves the loop to others.
                await asyncio.sleep(0)
        finally:
            stream.abort()
            inbox.waiters.pop(key, None)
            if self._streams.get(name) is stream:
                del self._streams[name]
