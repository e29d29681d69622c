"""LLM inference, in vLLM's words.

>>> from llmrt import LLM, SamplingParams
>>> llm = LLM()  # the story model of the package; else the path of a GGUF file
>>> [output] = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=8))
>>> len(output.outputs[0].token_ids)
8
>>> llm.close()

`LLM` computes a list of prompts, `AsyncEngine` streams requests in an event loop, `Server` has the routes of `llmrt serve`.
`devices()` and `plugins()` list what a machine has. Errors are `llmrt.Error`, with `code`, `cause` and `remedy`.
"""

from ._args import AsyncEngineArgs, EngineArgs
from ._async import AsyncEngine
from ._llm import LLM
from ._llmrt import __version__
from ._params import BeamSearchParams, RequestOutputKind, SamplingParams
from ._present import Device, Plugin, devices, plugins
from ._prompts import TextPrompt, TokensPrompt
from ._server import Reply, Server
from ._tokenizer import Tokenizer
from .errors import (
    ClosedError,
    DeviceError,
    Error,
    ForkedError,
    ModelError,
    OutOfMemoryError,
    RequestError,
)
from .outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    Logprobs,
    RequestMetrics,
    RequestOutput,
)

AsyncLLM = AsyncLLMEngine = AsyncEngine

__all__ = [
    "AsyncEngine",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "ClosedError",
    "CompletionOutput",
    "Device",
    "DeviceError",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "EngineArgs",
    "Error",
    "ForkedError",
    "LLM",
    "Logprob",
    "Logprobs",
    "ModelError",
    "OutOfMemoryError",
    "Plugin",
    "Reply",
    "RequestError",
    "RequestMetrics",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "Server",
    "TextPrompt",
    "Tokenizer",
    "TokensPrompt",
    "__version__",
    "devices",
    "plugins",
]
