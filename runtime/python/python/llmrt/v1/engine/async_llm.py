"""The engine of event loops, where vLLM has it."""

from ..._async import AsyncEngine as AsyncLLM

__all__ = ["AsyncLLM"]
