"""Prompts, where vLLM has them."""

from ._prompts import TextPrompt, TokensPrompt

__all__ = ["TextPrompt", "TokensPrompt"]
