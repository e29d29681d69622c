"""What `LLM` and `AsyncEngine` have in common: a loaded model."""

from __future__ import annotations

import itertools
import random
import weakref
from types import TracebackType
from typing import Any

from . import _llmrt
from ._args import EngineArgs
from ._tokenizer import Tokenizer
from .errors import RequestError


class Model:
    """A loaded model on its devices. It is closed at the end of a `with` block, when it is collected, and at exit."""

    def __init__(self, args: EngineArgs) -> None:
        self._native = _llmrt.Engine(args.path, args.to_native())
        if args.max_model_len is not None and args.max_model_len > self._native.n_ctx:
            trained = self._native.n_ctx
            self._native.close()
            cause = f"EngineArgs: max_model_len is {args.max_model_len}, and the model was trained on {trained} tokens"
            raise RequestError(cause, "bad_param", f"give {trained} or less, or -1")
        self._tokenizer = Tokenizer(self._native.tokenizer)
        self._requests = itertools.count()
        self._random = random.Random(args.seed) if args.seed is not None else random.SystemRandom()
        self._finalizer = weakref.finalize(self, self._native.close)

    def close(self) -> None:
        """Ends all requests, each with ClosedError, and frees the model. A second call does nothing."""
        self._native.close()

    shutdown = close

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._native.is_open

    @property
    def devices(self) -> list[str]:
        """Names of the devices that the model may use, first choice first."""
        return self._native.devices

    @property
    def warnings(self) -> list[str]:
        """What did not go as requested while the model was loaded."""
        return self._native.warnings

    @property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its text may have."""
        return self._native.n_ctx

    def stats(self) -> dict[str, int]:
        """Queues, KV cache and counters after the last step.

        `n_waiting`, `n_running` and `n_swapped` count requests, `n_blocks` those of the KV cache, `n_blocks_used` those that
        requests have; the others count since the start.
        """
        return self._native.stats()

    def _seed(self) -> int:
        """The seed of the next request that has none."""
        return self._random.getrandbits(64)

    def _tokens(self, text: str | None, ids: list[int] | None) -> list[int]:
        """Ids of a prompt."""
        if ids is None:
            ids = self._tokenizer.prompt(text or "")
        if not ids:
            remedy = "give a text, or at least one token id"
            raise RequestError("the prompt has no tokens", "bad_prompt", remedy)
        return ids

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
