"""Arguments of engines, where vLLM has them."""

from .._args import AsyncEngineArgs, EngineArgs

__all__ = ["AsyncEngineArgs", "EngineArgs"]
