"""What an engine is opened with. Names are vLLM's where vLLM has the argument."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from . import _check as check
from .errors import RequestError, refuse_lacking

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
    "quantization": ((None, "gguf"), "leave it out: weights have the types of the file"),
    "cpu_offload_gb": ((0,), "leave it out: what a device has no memory for goes to the CPU"),
    "enforce_eager": ((False, True), "leave it out"),
    "enable_lora": ((False,), "merge the adapter into the model"),
    "enable_chunked_prefill": ((None, False, True), "leave it out: prompts are computed in chunks"),
    "task": (("auto", "generate", "embed", None), "leave it out: each call names its task"),
    "runner": (("auto", "generate", "pooling"), "leave it out: each call names its task"),
    "load_format": (("auto", "gguf"), "give a GGUF file"),
    "disable_log_stats": ((False, True), "leave it out: stats() has the counters"),
    "disable_log_requests": ((False, True), "leave it out"),
    "generation_config": (("auto", "vllm"), "leave it out, and give SamplingParams"),
    "max_logprobs": ((20, -1), "leave it out: SamplingParams may have any number of logprobs"),
    "download_dir": ((None,), "fetch models with `llmrt pull`"),
    "hf_overrides": ((None, {}), "change the file's metadata with `llmrt convert --override-kv`"),
    "limit_mm_per_prompt": ((None, {}), "leave it out: prompts are texts"),
    "distributed_executor_backend": ((None, "mp", "uni", "external_launcher"), "use llmrt.ray"),
    "served_model_name": ((None,), "leave it out"),
    "compilation_config": ((None, 0, {}), "leave it out"),
}
# What vLLM has, with an effect that a model here gets by other means: any value is taken, with a warning.
_WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    "dtype": ("auto", "weights have the types of the file"),
    "gpu_memory_utilization": (0.9, "memory is that of max_model_len and max_num_seqs, or of num_gpu_blocks_override"),
}
# GiB of swap, tokens of a step, tokens of a block.
_MOST_SWAP, _MOST_BATCH, _MOST_BLOCK = 1 << 20, 1 << 20, 1 << 16


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
        max_model_len: Tokens of a prompt and its text, at most as many as the model was trained on. None: 4096, or all of these;
            -1: all of these.
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
        speculative_config: What guesses next tokens, which one step checks; texts stay the same. {"model": path} is a smaller
            model with the same vocabulary or layers that predict ahead, {"method": "ngram"} the text itself; with
            num_speculative_tokens (3), draft_p_min (0.4), prompt_lookup_min (2) and prompt_lookup_max (4).
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
    speculative_config: Mapping[str, Any] | None = None
    tokenizer: InitVar[Any] = None
    tokenizer_mode: InitVar[str] = "auto"
    skip_tokenizer_init: InitVar[bool] = False
    trust_remote_code: InitVar[bool] = False
    revision: InitVar[str | None] = None
    tensor_parallel_size: InitVar[int] = 1
    pipeline_parallel_size: InitVar[int] = 1
    data_parallel_size: InitVar[int] = 1
    quantization: InitVar[str | None] = None
    cpu_offload_gb: InitVar[float] = 0
    enforce_eager: InitVar[bool] = False
    enable_lora: InitVar[bool] = False
    enable_chunked_prefill: InitVar[bool | None] = None
    task: InitVar[str | None] = "auto"
    runner: InitVar[str] = "auto"
    load_format: InitVar[str] = "auto"
    disable_log_stats: InitVar[bool] = False
    disable_log_requests: InitVar[bool] = False
    generation_config: InitVar[str] = "auto"
    max_logprobs: InitVar[int] = 20
    download_dir: InitVar[str | None] = None
    hf_overrides: InitVar[Any] = None
    limit_mm_per_prompt: InitVar[Any] = None
    distributed_executor_backend: InitVar[str | None] = None
    served_model_name: InitVar[Any] = None
    compilation_config: InitVar[Any] = None
    dtype: InitVar[str] = "auto"
    gpu_memory_utilization: InitVar[float] = 0.9

    def __post_init__(self, *others: Any) -> None:
        refuse_lacking("EngineArgs", _LACKING, others)
        for (name, (neutral, why)), found in zip(_WITHOUT_EFFECT.items(), others[len(_LACKING) :]):
            if found != neutral:
                warnings.warn(f"EngineArgs: {name}={found!r} has no effect: {why}", stacklevel=2)
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
        if length == 0:
            raise check.out_of_range(where, "max_model_len", length, "1 or more, -1 or None")
        if self.seed is not None:
            whole(where, "seed", self.seed, -(2**63), 2**64 - 1)
        caches = self.enable_prefix_caching is None or check.boolean(
            where, "enable_prefix_caching", self.enable_prefix_caching
        )
        kv_type = check.one_of(where, "kv_cache_dtype", self.kv_cache_dtype, ("auto", "f16", "f32", "q8_0"))
        swap = check.number(where, "swap_space", self.swap_space)
        if not 0 <= swap <= _MOST_SWAP:
            raise check.out_of_range(where, "swap_space", self.swap_space, f"0 to {_MOST_SWAP} GiB")
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
            "max_model_len": 2**31 - 1 if length == -1 else length,
            "max_num_seqs": whole(where, "max_num_seqs", self.max_num_seqs, 1, 4096),
            "max_num_batched_tokens": optional(where, "max_num_batched_tokens", self.max_num_batched_tokens, 1, _MOST_BATCH)
            or 512,
            "block_size": optional(where, "block_size", self.block_size, 1, _MOST_BLOCK),
            "kv_blocks": optional(where, "num_gpu_blocks_override", self.num_gpu_blocks_override, 1),
            "swap_space": int(swap * 2**30),
            "kv_cache_dtype": "f16" if kv_type == "auto" else kv_type,
            "enable_prefix_caching": caches,
            "strict": check.boolean(where, "strict", self.strict),
            "load_mode": check.one_of(where, "load_mode", self.load_mode, ("auto", "mmap", "mmap+mlock", "none", "mlock")),
            "chat_template": template(where, self.chat_template),
            "drafts": drafts(where, self.speculative_config),
        }


AsyncEngineArgs = EngineArgs


def paths(where: str, found: Any) -> list[str]:
    """Files or folders of plugins."""
    if isinstance(found, (str, os.PathLike)) or not isinstance(found, Iterable):
        raise check.wrong(where, "plugins", found, "a list of paths")
    return [check.path(where, f"plugins[{i}]", item) for i, item in enumerate(found)]


def drafts(where: str, found: Any) -> dict[str, Any] | None:
    """What guesses next tokens."""
    if found is None:
        return None
    where = f"{where}: speculative_config"
    if not isinstance(found, Mapping):
        raise check.wrong(where, "it", found, "a dict")
    known = {"method", "model", "num_speculative_tokens", "draft_p_min", "prompt_lookup_min", "prompt_lookup_max"}
    for name in found:
        if name not in known:
            raise check.out_of_range(where, "a key", name, f"one of {', '.join(sorted(known))}")
    model = found.get("model")
    default = "ngram" if model is None else "draft_model"
    method = check.one_of(where, "method", found.get("method") or default, ("draft_model", "mtp", "ngram"))
    if (method == "ngram") != (model is None):
        expected = "no model" if method == "ngram" else "the path of a file"
        raise check.out_of_range(where, "model", model, f"{expected} for the method {method}")
    most = check.whole(where, "num_speculative_tokens", found.get("num_speculative_tokens", 3), 1, 64)
    least_probable = check.number(where, "draft_p_min", found.get("draft_p_min", 0.4))
    if not 0 <= least_probable <= 1:
        raise check.out_of_range(where, "draft_p_min", least_probable, "0 to 1")
    longest = check.whole(where, "prompt_lookup_max", found.get("prompt_lookup_max", 4), 1, 64)
    shortest = check.whole(where, "prompt_lookup_min", found.get("prompt_lookup_min", min(2, longest)), 1, longest)
    return {
        "model": None if model is None else check.path(where, "model", model),
        "num_speculative_tokens": most,
        "min_probability": least_probable,
        "prompt_lookup_min": shortest,
        "prompt_lookup_max": longest,
    }


def template(where: str, found: Any) -> str | None:
    """The text of a chat template, which may be in a file."""
    if found is None:
        return None
    if isinstance(found, str) and ("{" in found or "\n" in found):
        return check.text(where, "chat_template", found)
    path = check.path(where, "chat_template", found)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError, ValueError) as e:
        remedy = "give a template's text, or the path of a file that has it"
        raise RequestError(f"{where}: chat_template is {path!r}: {e}", "chat_template", remedy) from None
