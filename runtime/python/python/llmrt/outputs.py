"""What is generated. The names are vLLM's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._tokenizer import Tokenizer


@dataclass(frozen=True)
class Logprob:
    """A token's log-probability.

    Attributes:
        logprob: ln p.
        rank: Its place among the likeliest tokens, from 1; None: after those that were requested.
        decoded_token: Its text.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class Logprobs(Sequence):
    """Log-probabilities by position: for each the dict that vLLM has, of `Logprob` by token id, made when it is read.

    The numbers are in two arrays of the shape [positions, columns]. Column 0 is the token of the text, the others are the
    likeliest tokens, the likeliest first. The arrays are views of the engine's memory: nothing is copied.

    >>> from llmrt import LLM, SamplingParams
    >>> with LLM() as llm:
    ...     [output] = llm.generate("Once", SamplingParams(temperature=0, max_tokens=4, logprobs=2))
    >>> logprobs = output.outputs[0].logprobs
    >>> logprobs.values.shape, logprobs.values.dtype.name
    ((4, 3), 'float64')
    >>> logprobs[0][output.outputs[0].token_ids[0]].rank
    1

    Attributes:
        token_ids: uint32.
        values: float64, ln p.
    """

    __slots__ = ("token_ids", "values", "_tokenizer", "_starts_with_none")

    def __init__(
        self, arrays: tuple[np.ndarray, np.ndarray], n: int, tokenizer: Tokenizer, starts_with_none: bool = False
    ) -> None:
        ids, values = arrays
        self.token_ids = ids.reshape(n, -1) if n else ids.reshape(0, 1)
        self.values = values.reshape(self.token_ids.shape)
        self._tokenizer = tokenizer
        self._starts_with_none = starts_with_none

    def __len__(self) -> int:
        return len(self.token_ids) + self._starts_with_none

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[at] for at in range(*i.indices(len(self)))]
        i = range(len(self))[i] - self._starts_with_none
        if i < 0:
            return None
        ids, values = self.token_ids[i].tolist(), self.values[i].tolist()
        places = {}
        for rank, (token, value) in enumerate(zip(ids, values)):
            places[token] = Logprob(value, rank or None, self._tokenizer.token(token))
        return places

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process has no vocabulary: the dicts with their texts.
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"Logprobs({list(self)!r})"


@dataclass
class CompletionOutput:
    """A text.

    Attributes:
        index: Which of the request's texts.
        text: The text, without a stop string.
        token_ids: Its tokens, without one that ended it.
        cumulative_logprob: Sum of their log-probabilities, if these were requested.
        logprobs: Log-probabilities by token, if these were requested.
        finish_reason: stop, length or abort; None: it goes on.
        stop_reason: The stop string or the stop token that ended it; None: another end.
        lora_request: None, as vLLM has it.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    lora_request: None = None

    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None


@dataclass
class RequestMetrics:
    """Times of a request, in seconds since the epoch.

    Attributes:
        arrival_time: When it was queued.
        first_token_time: When its first token came.
        finished_time: When it ended.
    """

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass
class RequestOutput:
    """What a request has generated.

    Attributes:
        request_id: The request.
        prompt: Its text; None: token ids were given.
        prompt_token_ids: Its tokens.
        prompt_logprobs: Log-probabilities of its tokens, if these were requested; the first is None.
        outputs: Its texts.
        finished: Whether all have ended.
        metrics: Its times.
        num_cached_tokens: Tokens of the prompt that the prefix cache had.
        encoder_prompt, encoder_prompt_token_ids, lora_request, kv_transfer_params: None, as vLLM has them.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: Logprobs | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: RequestMetrics | None = None
    num_cached_tokens: int | None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    lora_request: None = None
    kv_transfer_params: None = None


@dataclass
class EmbeddingOutput:
    """A vector.

    Attributes:
        embedding: float32, as long as the model's hidden states; a view of the engine's memory.
    """

    embedding: np.ndarray

    @property
    def hidden_size(self) -> int:
        """How many numbers it has."""
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """The vector of a prompt."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass
class BeamSearchSequence:
    """A text of a beam search.

    Attributes:
        tokens: Those of the prompt and of the text.
        text: Prompt and text.
        cum_logprob: Sum of the text's log-probabilities.
    """

    tokens: list[int]
    text: str
    cum_logprob: float
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass
class BeamSearchOutput:
    """The texts of a beam search, the best first."""

    sequences: list[BeamSearchSequence]


@dataclass
class Origin:
    """What outputs repeat of their request."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    arrival_time: float


def request_output(taken: tuple[Any, ...], origin: Origin, tokenizer: Tokenizer) -> RequestOutput:
    """The native module's tuple as an output."""
    texts, prompt_rows, _, _, n_cached, first_token, ended = taken
    outputs = []
    for index, text, ids, rows, cumulative, reason, stop in texts:
        logprobs = None if rows is None else Logprobs(rows, len(ids), tokenizer)
        outputs.append(CompletionOutput(index, text, ids, cumulative, logprobs, reason, stop))
    prompt_logprobs = None
    if prompt_rows is not None:
        n = len(origin.prompt_token_ids) - 1
        prompt_logprobs = Logprobs(prompt_rows, n, tokenizer, starts_with_none=True)
    began = origin.arrival_time
    metrics = RequestMetrics(
        began,
        None if first_token is None else began + first_token,
        None if ended is None else began + ended,
    )
    return RequestOutput(
        origin.request_id,
        origin.prompt,
        origin.prompt_token_ids,
        prompt_logprobs,
        outputs,
        ended is not None,
        metrics,
        None if ended is None else n_cached,
    )
