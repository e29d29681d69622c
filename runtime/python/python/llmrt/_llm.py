"""Texts for a list of prompts, computed together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _check as check
from . import _prompts
from ._args import EngineArgs
from ._model import Model
from ._params import BeamSearchParams, SamplingParams
from ._progress import on_end
from ._tokenizer import Tokenizer
from .errors import RequestError, no_lora, unsupported
from .outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Origin,
    RequestOutput,
    request_output,
)

# A task's numbers, the prompt's text, its ids.
_Request = tuple[dict[str, Any], "str | None", list[int]]


class LLM(Model):
    """A model that computes lists of prompts.

    >>> from llmrt import LLM, SamplingParams
    >>> with LLM() as llm:
    ...     outputs = llm.generate(["Once upon a time", "The cat"], SamplingParams(temperature=0, max_tokens=12))
    >>> [output.prompt for output in outputs]
    ['Once upon a time', 'The cat']
    >>> outputs[0].outputs[0].finish_reason
    'length'

    Calls may come from several threads; their requests are computed in the same steps. Ctrl-C ends a call with
    KeyboardInterrupt and aborts its requests.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **args: Any) -> None:
        """Loads a model; `EngineArgs` has the arguments."""
        super().__init__(EngineArgs(model, **args))

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: Any = None,
        priority: list[int] | None = None,
    ) -> list[RequestOutput]:
        """The texts that follow prompts, in the prompts' order.

        >>> from llmrt import LLM, SamplingParams
        >>> with LLM() as llm:
        ...     [output] = llm.generate("Once", SamplingParams(temperature=0, max_tokens=8))
        >>> output.finished, output.outputs[0].finish_reason
        (True, 'length')

        Args:
            prompts: A text, {"prompt": text}, {"prompt_token_ids": ids}, a list of ids, or a list of these.
            sampling_params: For all prompts, or one each.
            use_tqdm: Whether a bar shows how many are done, if tqdm is installed; or a function that makes such a bar.
            lora_request: None.
            priority: A number for each prompt; smaller goes first.
        """
        no_lora(lora_request)
        return self._run(self._requests_of(self._read(prompts), sampling_params, True, priority), use_tqdm)

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: Any = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """The answers to conversations, in the words of the chat template.

        >>> from llmrt import LLM, SamplingParams
        >>> template = "{{ messages[0].content }}, there was"
        >>> with LLM(chat_template=template) as llm:
        ...     [output] = llm.chat([{"role": "user", "content": "Once upon a time"}], SamplingParams(max_tokens=4))
        >>> output.prompt
        'Once upon a time, there was'

        Args:
            messages: A conversation, that is a list of dicts with role and content, or a list of conversations.
            sampling_params: For all conversations, or one each.
            use_tqdm: As in `generate`.
            lora_request: None.
            chat_template: A Jinja template in the place of the model's, or the path of a file.
            chat_template_content_format: auto: contents are given as the template takes them.
            add_generation_prompt: Whether prompts end with the opening of the answer.
            continue_final_message: False.
            tools: Descriptions of functions, for templates that take these.
            chat_template_kwargs: Further variables of the template.
        """
        no_lora(lora_request)
        if chat_template_content_format not in ("auto", "string", "openai"):
            raise unsupported("chat", "chat_template_content_format", chat_template_content_format, "leave it out")
        if continue_final_message is not False:
            remedy = "render the prompt with apply_chat_template, append the beginning, and call generate"
            raise unsupported("chat", "continue_final_message", continue_final_message, remedy)
        variables = {} if chat_template_kwargs is None else chat_template_kwargs
        if not isinstance(variables, Mapping):
            raise check.wrong("chat", "chat_template_kwargs", variables, "a dict")
        read = [
            self._tokenizer.render(one, chat_template, tools, add_generation_prompt, variables)
            for one in _prompts.conversations(messages)
        ]
        return self._run(self._requests_of(read, sampling_params, False, None), use_tqdm)

    def beam_search(self, prompts: Any, params: BeamSearchParams) -> list[BeamSearchOutput]:
        """The likeliest texts of each prompt.

        >>> from llmrt import LLM, BeamSearchParams
        >>> with LLM() as llm:
        ...     [output] = llm.beam_search("Once", BeamSearchParams(beam_width=2, max_tokens=4))
        >>> len(output.sequences)
        2
        """
        if not isinstance(params, BeamSearchParams):
            raise check.wrong("beam_search", "params", params, "BeamSearchParams")
        outputs = self._run(self._requests_for(params.to_native(), prompts), False)
        return [BeamSearchOutput([self._beam(output, text) for text in output.outputs]) for output in outputs]

    def embed(
        self, prompts: Any, *, normalize: bool = True, use_tqdm: bool | Callable[..., Any] = True
    ) -> list[EmbeddingRequestOutput]:
        """A vector for each prompt, pooled from those of its tokens as the model's file states.

        >>> from llmrt import LLM
        >>> with LLM() as llm:
        ...     [output] = llm.embed("Once upon a time")
        >>> output.outputs.embedding.dtype.name, output.outputs.embedding.ndim
        ('float32', 1)

        Args:
            prompts: As in `generate`.
            normalize: Whether vectors are divided by their lengths.
            use_tqdm: As in `generate`.
        """
        task = {"normalize": check.boolean("embed", "normalize", normalize)}
        requests = self._requests_for(task, prompts)
        return [
            EmbeddingRequestOutput(str(next(self._requests)), EmbeddingOutput(result[2][0]), ids)
            for result, (_, _, ids) in zip(self._compute(requests, use_tqdm), requests)
        ]

    def logits(self, prompts: Any, *, start: int = 0) -> list[np.ndarray]:
        """Logits after each token of each prompt, from a position on: float32, [tokens, vocab_size]. Not in vLLM.

        >>> from llmrt import LLM
        >>> with LLM() as llm:
        ...     [logits] = llm.logits("Once upon a time")
        ...     logits.shape[1] == llm.get_tokenizer().vocab_size
        True
        """
        task = {"start": check.whole("logits", "start", start)}
        taken = self._compute(self._requests_for(task, prompts), False)
        return [result[3].reshape(-1, self._tokenizer.vocab_size) for result in taken]

    def get_tokenizer(self) -> Tokenizer:
        """Text and token ids."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """New parameters with vLLM's defaults."""
        return SamplingParams()

    def _requests_for(self, task: dict[str, Any], prompts: Any) -> list[_Request]:
        """The same task for each prompt."""
        return [(task, text, ids) for text, ids in self._read(prompts)]

    def _read(self, prompts: Any) -> list[tuple[str | None, list[int]]]:
        """The text of each prompt, if it has one, and its ids."""
        read = [_prompts.read(prompt, f"prompts[{i}]") for i, prompt in enumerate(_prompts.as_list(prompts))]
        return [(text, self._tokens(text, ids)) for text, ids in read]

    def _compute(self, requests: list[_Request], use_tqdm: Any) -> list[tuple[Any, ...]]:
        """What the native module gives for each request."""
        return self._native.run([(task, ids) for task, _, ids in requests], on_end(use_tqdm, len(requests)))

    def _requests_of(
        self, read: list[tuple[Any, list[int]]], params: Any, continues: bool, priority: Any
    ) -> list[_Request]:
        """Requests for text."""
        each = _one_each("sampling_params", SamplingParams() if params is None else params, len(read), SamplingParams)
        order = [0] * len(read) if priority is None else _one_each("priority", priority, len(read), int)
        order = [check.whole("generate", "priority", number, -(2**31) + 1) for number in order]
        # In vLLM smaller goes first, in the engine larger.
        return [
            (params.to_native(self._seed(), continues=continues, priority=-number), text, ids)
            for (text, ids), params, number in zip(read, each, order)
        ]

    def _run(self, requests: list[_Request], use_tqdm: Any) -> list[RequestOutput]:
        arrival = time.time()
        taken = self._compute(requests, use_tqdm)
        return [
            request_output(result, Origin(str(next(self._requests)), text, ids, arrival), self._tokenizer)
            for result, (_, text, ids) in zip(taken, requests)
        ]

    def _beam(self, output: RequestOutput, text: Any) -> BeamSearchSequence:
        tokens = output.prompt_token_ids + text.token_ids
        whole = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return BeamSearchSequence(tokens, whole, text.cumulative_logprob, text.finish_reason, text.stop_reason)


def _one_each(name: str, found: Any, n: int, kind: type) -> list[Any]:
    """One for all prompts, or a list with one for each."""
    if isinstance(found, kind):
        return [found] * n
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        raise check.wrong("generate", name, found, f"{kind.__name__}, or a list of these")
    for i, item in enumerate(found):
        if not isinstance(item, kind) or isinstance(item, bool):
            raise check.wrong("generate", f"{name}[{i}]", item, kind.__name__)
    if len(found) != n:
        cause = f"generate: {name} has {len(found)} items for {n} prompts: expected one for each"
        raise RequestError(cause, "bad_param", f"give one of {name}, or a list of {n}")
    return list(found)
