"""How text is generated. Names and defaults are vLLM's."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import Any

from . import _check as check
from .errors import refuse_lacking, unsupported

_ALL = 2**31 - 1


class RequestOutputKind(enum.Enum):
    """What each output of a stream has."""

    CUMULATIVE = 0
    """The whole text so far."""
    DELTA = 1
    """What came since the last output."""
    FINAL_ONLY = 2
    """Nothing before the end, then the whole text."""


# What vLLM has and llmrt lacks: values without effect, and what to do in place of another one.
_LACKING: dict[str, tuple[tuple[Any, ...], str]] = {
    "detokenize": ((True,), "leave it out, and use token_ids"),
    "skip_special_tokens": ((True,), "leave it out, and decode token_ids with skip_special_tokens=False"),
    "spaces_between_special_tokens": ((True,), "leave it out"),
    "include_stop_str_in_output": ((False,), "append stop_reason to the text"),
    "truncate_prompt_tokens": ((None,), "shorten the prompt"),
    "logits_processors": ((None, []), "use logit_bias, bad_words or the penalties"),
    "allowed_token_ids": ((None,), "use logit_bias"),
    "structured_outputs": ((None,), "describe the format in the prompt, and check the answer"),
    "guided_decoding": ((None,), "describe the format in the prompt, and check the answer"),
    "extra_args": ((None, {}), "leave it out"),
    "flat_logprobs": ((False,), "use the arrays of Logprobs"),
}


@dataclass
class SamplingParams:
    """Parameters of sampling.

    >>> SamplingParams(temperature=0.8, top_p=0.95, max_tokens=32).max_tokens
    32
    >>> SamplingParams(temperature="hot")
    Traceback (most recent call last):
    TypeError: SamplingParams: temperature is 'hot' (str): expected a number

    Args:
        n: Texts that are returned.
        best_of: Texts that are generated, of which the n likeliest are returned.
        presence_penalty: Subtracted from the logits of tokens that the text has; -100 to 100.
        frequency_penalty: The same for each time it has them.
        repetition_penalty: Logits of tokens of prompt and text are divided by it; 0.01 to 100.
        temperature: Logits are divided by it; 0: the likeliest token.
        top_p: Only the fewest tokens that together have this probability; 1: all.
        top_k: Only so many of the likeliest tokens; 0 or -1: all.
        min_p: Only tokens at least this times as probable as the likeliest.
        typical_p: Only the most typical tokens that together have this probability (not in vLLM).
        seed: Makes the text repeatable beside any other requests; -1: none.
        stop: Strings that end the text and are no part of it.
        stop_token_ids: Tokens that do.
        bad_words: Words that the text does not contain.
        ignore_eos: Whether tokens that end a text are tokens like others.
        max_tokens: Most tokens; None: as many as the context holds.
        min_tokens: Tokens before which nothing ends the text.
        logprobs: Log-probabilities of so many of the likeliest tokens beside each token's own; -1: all.
        prompt_logprobs: The same for the prompt's tokens.
        logit_bias: Numbers that are added to the logits of tokens; -inf forbids one.
        output_kind: What each output of a stream has.
        cache_salt: Requests with different salts share no cached prefixes.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    cache_salt: str | None = None
    detokenize: InitVar[bool] = True
    skip_special_tokens: InitVar[bool] = True
    spaces_between_special_tokens: InitVar[bool] = True
    include_stop_str_in_output: InitVar[bool] = False
    truncate_prompt_tokens: InitVar[int | None] = None
    logits_processors: InitVar[Any] = None
    allowed_token_ids: InitVar[list[int] | None] = None
    structured_outputs: InitVar[Any] = None
    guided_decoding: InitVar[Any] = None
    extra_args: InitVar[Any] = None
    flat_logprobs: InitVar[bool] = False

    def __post_init__(self, *lacking: Any) -> None:
        where = "SamplingParams"
        refuse_lacking(where, _LACKING, lacking)
        # As vLLM has them, for scripts that read or extend them.
        self.stop = check.texts(where, "stop", self.stop)
        self.stop_token_ids = check.token_ids(where, "stop_token_ids", self.stop_token_ids or [])
        self.bad_words = check.texts(where, "bad_words", self.bad_words)
        self.seed = None if self.seed == -1 else self.seed
        self.to_native(0)

    def to_native(self, seed: int, *, continues: bool = True, priority: int = 0) -> dict[str, Any]:
        """The request's numbers, checked. `seed` counts where these have none."""
        where = "SamplingParams"
        numbers = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature")
        native: dict[str, Any] = {
            name: check.number(where, name, getattr(self, name))
            for name in (*numbers, "top_p", "min_p", "typical_p")
        }
        if native["temperature"] < 0:
            raise check.out_of_range(where, "temperature", self.temperature, "0 or more")
        for name in ("top_p", "typical_p"):
            if not 0 < native[name] <= 1:
                raise check.out_of_range(where, name, getattr(self, name), "more than 0, at most 1")
        if not 0 <= native["min_p"] <= 1:
            raise check.out_of_range(where, "min_p", self.min_p, "0 to 1")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise check.wrong(where, "output_kind", self.output_kind, "a RequestOutputKind")
        given = None if self.seed is None else check.whole(where, "seed", self.seed, -(2**63), 2**64 - 1)
        native.update(
            n=check.whole(where, "n", self.n, 1),
            best_of=check.optional_whole(where, "best_of", self.best_of, 1),
            top_k=check.whole(where, "top_k", self.top_k, -1),
            seed=seed if given is None else given % 2**64,
            stop=check.texts(where, "stop", self.stop),
            stop_token_ids=check.token_ids(where, "stop_token_ids", self.stop_token_ids or []),
            bad_words=check.texts(where, "bad_words", self.bad_words),
            ignore_eos=check.boolean(where, "ignore_eos", self.ignore_eos),
            max_tokens=check.optional_whole(where, "max_tokens", self.max_tokens, 1),
            min_tokens=check.whole(where, "min_tokens", self.min_tokens),
            logprobs=_count(where, "logprobs", self.logprobs),
            prompt_logprobs=_count(where, "prompt_logprobs", self.prompt_logprobs),
            logit_bias=_biases(where, self.logit_bias),
            cache_salt=check.text(where, "cache_salt", self.cache_salt or ""),
            continues=continues,
            priority=priority,
        )
        if native["logprobs"] is not None and (native["best_of"] or 0) > native["n"]:
            remedy = "leave out logprobs, or set best_of to n"
            raise unsupported(where, "logprobs", self.logprobs, remedy)
        return native

    def clone(self) -> SamplingParams:
        """A copy."""
        return SamplingParams(**{name: getattr(self, name) for name in _FIELDS})


_FIELDS = [name for name in SamplingParams.__dataclass_fields__ if name not in _LACKING]


def _count(where: str, name: str, found: Any) -> int | None:
    """A number of likeliest tokens; -1: all, True: 1."""
    if found is None or found is False:
        return None
    if found is True:
        return 1
    n = check.whole(where, name, found, -1)
    return _ALL if n == -1 else n


def _biases(where: str, found: Any) -> list[tuple[int, float]]:
    if found is None:
        return []
    if not isinstance(found, Mapping):
        raise check.wrong(where, "logit_bias", found, "a dict of numbers by token id")
    biases = []
    for token, bias in found.items():
        token = int(token) if isinstance(token, str) and token.isdecimal() else token
        token = check.whole(where, "a key of logit_bias", token, 0, 2**32 - 1)
        is_number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
        forbids = is_number and bias == float("-inf")
        biases.append((token, bias if forbids else check.number(where, f"logit_bias[{token}]", bias)))
    return biases


@dataclass
class BeamSearchParams:
    """Parameters of beam search.

    Args:
        beam_width: Texts that are followed, and returned.
        max_tokens: Most tokens.
        ignore_eos: Whether tokens that end a text are tokens like others.
        temperature: 0; others are refused, as no token is drawn.
        length_penalty: Sums of log-probabilities are divided by the length to this power.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        self.to_native()

    def to_native(self) -> dict[str, Any]:
        """The request's numbers, checked."""
        where = "BeamSearchParams"
        if check.number(where, "temperature", self.temperature) != 0:
            raise unsupported(where, "temperature", self.temperature, "leave it out")
        return {
            "beam_width": check.whole(where, "beam_width", self.beam_width, 2),
            "beam_max_tokens": check.whole(where, "max_tokens", self.max_tokens, 1),
            "ignore_eos": check.boolean(where, "ignore_eos", self.ignore_eos),
            "length_penalty": check.number(where, "length_penalty", self.length_penalty),
        }
