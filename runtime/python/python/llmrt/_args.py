"""What an engine is opened with. Names are vLLM's where vLLM has the argument."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from . import _check as check
from .errors import refuse_lacking

# What vLLM has and llmrt lacks: values without effect, and what to do in place of another one.
_LACKING: dict[str, tuple[tuple[Any, ...], str]] = {
    "tokenizer": ((None,), "leave it out: the model's file has its tokenizer"),
    "tokenizer_mode": (("auto",), "leave it out: the model's file has its tokenizer"),
    "skip_tokenizer_init": ((False,), "leave it out"),
    "trust_remote_code": ((False, True), "leave it out: no code of a model is run"),
    "revision": ((None,), "give the path of a file"),
    "tensor_parallel_size": ((1,), "leave it out: devices names the devices that share the model"),
    "pipeline_parallel_size": ((1,), "leave it out: devices names the devices that share the model"),
    "data_parallel_size": ((1,), "load a model in each process"),
    "dtype": (("auto",), "leave it out: weights have the types of the file"),
    "quantization": ((None, "gguf"), "leave it out: weights have the types of the file"),
    "gpu_memory_utilization": ((0.9,), "give max_model_len and max_num_seqs, or num_gpu_blocks_override"),
    "cpu_offload_gb": ((0,), "leave it out: what a device has no memory for goes to the CPU"),
    "enforce_eager": ((False,), "leave it out"),
    "enable_lora": ((False,), "merge the adapter into the model"),
    "enable_chunked_prefill": ((None, True), "leave it out: prompts are computed in chunks"),
    "speculative_config": ((None,), "leave it out"),
    "task": (("auto", "generate", "embed", None), "leave it out: each call names its task"),
    "runner": (("auto", "generate", "pooling"), "leave it out: each call names its task"),
    "load_format": (("auto", "gguf"), "give a GGUF file"),
    "disable_log_stats": ((False, True), "leave it out: stats() has the counters"),
    "disable_log_requests": ((False, True), "leave it out"),
}


@dataclass
class EngineArgs:
    """The arguments of `LLM` and `AsyncEngine`.

    Args:
        model: Path of a GGUF file, of a split model any part; else the name of a model that `llmrt pull` has fetched. None: the
            story model of the package.
        devices: Names as `llmrt.devices()` lists them, first choice first. None: all that are not opt-in. The CPU comes last.
        plugins: Files or folders of plugins, besides the places that the command searches.
        plugin_options: Options of plugins: {"cpu.…": "…"}.
        n_threads: Threads of the CPU. None: one for each core.
        max_model_len: Tokens of a prompt and its text. None: 4096, or what the model was trained on, if that is less;
            -1: what the model was trained on.
        max_num_seqs: Texts that are generated at the same time.
        max_num_batched_tokens: Most tokens of a step.
        block_size: Tokens in a block of the KV cache. None: what the devices prefer.
        num_gpu_blocks_override: Blocks of the KV cache. None: max_num_seqs texts of max_model_len tokens have room.
        swap_space: GiB of host memory for the blocks of preempted requests.
        kv_cache_dtype: auto (f16), f16, f32 or q8_0.
        enable_prefix_caching: Whether equal beginnings of prompts are computed once.
        strict: Whether it is an error that a part of the model runs on the CPU though another device comes first.
        load_mode: auto, mmap, mmap+mlock, none or mlock.
        chat_template: A Jinja template in the place of the model's: its text, or the path of a file.
        seed: Where SamplingParams have none. None: another one each time.
    """

    model: str | os.PathLike[str] | None = None
    devices: str | list[str] | None = None
    plugins: list[str | os.PathLike[str]] = field(default_factory=list)
    plugin_options: Mapping[str, str] = field(default_factory=dict)
    n_threads: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 8
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    swap_space: float = 0
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool | None = True
    strict: bool = False
    load_mode: str = "auto"
    chat_template: str | os.PathLike[str] | None = None
    seed: int | None = 0
    tokenizer: InitVar[Any] = None
    tokenizer_mode: InitVar[str] = "auto"
    skip_tokenizer_init: InitVar[bool] = False
    trust_remote_code: InitVar[bool] = False
    revision: InitVar[str | None] = None
    tensor_parallel_size: InitVar[int] = 1
    pipeline_parallel_size: InitVar[int] = 1
    data_parallel_size: InitVar[int] = 1
    dtype: InitVar[str] = "auto"
    quantization: InitVar[str | None] = None
    gpu_memory_utilization: InitVar[float] = 0.9
    cpu_offload_gb: InitVar[float] = 0
    enforce_eager: InitVar[bool] = False
    enable_lora: InitVar[bool] = False
    enable_chunked_prefill: InitVar[bool | None] = None
    speculative_config: InitVar[Any] = None
    task: InitVar[str | None] = "auto"
    runner: InitVar[str] = "auto"
    load_format: InitVar[str] = "auto"
    disable_log_stats: InitVar[bool] = False
    disable_log_requests: InitVar[bool] = False

    def __post_init__(self, *lacking: Any) -> None:
        refuse_lacking("EngineArgs", _LACKING, lacking)
        self.to_native()

    @property
    def path(self) -> str | None:
        """The model's file."""
        return None if self.model is None else check.path("EngineArgs", "model", self.model)

    def to_native(self) -> dict[str, Any]:
        """The settings, checked."""
        where = "EngineArgs"
        whole, optional = check.whole, check.optional_whole
        length = 4096 if self.max_model_len is None else whole(where, "max_model_len", self.max_model_len, -1)
        caches = self.enable_prefix_caching is None or check.boolean(
            where, "enable_prefix_caching", self.enable_prefix_caching
        )
        kv_type = check.text(where, "kv_cache_dtype", self.kv_cache_dtype)
        if not isinstance(self.plugin_options, Mapping):
            raise check.wrong(where, "plugin_options", self.plugin_options, "a dict of strings")
        return {
            "devices": check.texts(where, "devices", self.devices),
            "plugins": paths(where, self.plugins),
            "plugin_options": {
                check.text(where, "a key of plugin_options", key): check.text(where, f"plugin_options[{key!r}]", value)
                for key, value in self.plugin_options.items()
            },
            "n_threads": optional(where, "n_threads", self.n_threads, 1),
            "max_model_len": 2**31 - 1 if length == -1 else max(length, 1),
            "max_num_seqs": whole(where, "max_num_seqs", self.max_num_seqs, 1, 4096),
            "max_num_batched_tokens": optional(where, "max_num_batched_tokens", self.max_num_batched_tokens, 1) or 512,
            "block_size": optional(where, "block_size", self.block_size, 1),
            "kv_blocks": optional(where, "num_gpu_blocks_override", self.num_gpu_blocks_override, 1),
            "swap_space": int(max(check.number(where, "swap_space", self.swap_space), 0) * 2**30),
            "kv_cache_dtype": "f16" if kv_type == "auto" else kv_type,
            "enable_prefix_caching": caches,
            "strict": check.boolean(where, "strict", self.strict),
            "load_mode": check.text(where, "load_mode", self.load_mode),
            "chat_template": template(where, self.chat_template),
        }


AsyncEngineArgs = EngineArgs


def paths(where: str, found: Any) -> list[str]:
    """Files or folders of plugins."""
    if isinstance(found, (str, os.PathLike)) or not isinstance(found, Iterable):
        raise check.wrong(where, "plugins", found, "a list of paths")
    return [check.path(where, f"plugins[{i}]", item) for i, item in enumerate(found)]


def template(where: str, found: Any) -> str | None:
    """The text of a chat template, which may be in a file."""
    if found is None:
        return None
    if isinstance(found, str) and ("{" in found or "\n" in found):
        return check.text(where, "chat_template", found)
    with open(check.path(where, "chat_template", found), encoding="utf-8") as file:
        return file.read()
