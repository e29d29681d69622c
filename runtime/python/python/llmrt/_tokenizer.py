"""Text and token ids."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import _check as check
from . import _llmrt, _prompts
from ._args import template


class Tokenizer:
    """The vocabulary of a model.

    >>> from llmrt import LLM
    >>> with LLM() as llm:
    ...     tokenizer = llm.get_tokenizer()
    >>> tokenizer.decode(tokenizer.encode("Once upon a time"), skip_special_tokens=True).strip()
    'Once upon a time'
    """

    def __init__(self, native: _llmrt.Tokenizer) -> None:
        self._native = native

    @classmethod
    def from_file(cls, model: str | os.PathLike[str] | None = None) -> Tokenizer:
        """The vocabulary and the chat template of a model whose weights are not read.

        Args:
            model: Path of a GGUF file, or the name of a model that `llmrt pull` has fetched. None: the story model of the package.
        """
        path = None if model is None else check.path("Tokenizer.from_file", "model", model)
        return cls(_llmrt.Tokenizer.from_file(path))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text, of any length. Control tokens in it count as such.

        Args:
            text: Any text.
            add_special_tokens: Whether the tokens that the model needs around a text are added.
        """
        where = "Tokenizer.encode"
        add = check.boolean(where, "add_special_tokens", add_special_tokens)
        return self._native.encode(check.text(where, "text", text), add, False)

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """Ids of a text, or of several, as `input_ids`."""
        if isinstance(text, str):
            return {"input_ids": self.encode(text, add_special_tokens)}
        return {"input_ids": [self.encode(one, add_special_tokens) for one in check.texts("Tokenizer", "text", text)]}

    def prompt(self, text: str) -> list[int]:
        """Ids of a prompt. One that is much longer than the context is refused."""
        return self._native.encode(text, True, True)

    def decode(self, token_ids: int | Iterable[int], skip_special_tokens: bool = False) -> str:
        """Text of ids; with or without that of control tokens."""
        where = "Tokenizer.decode"
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        skip = check.boolean(where, "skip_special_tokens", skip_special_tokens)
        return self._native.decode(check.token_ids(where, "token_ids", ids), not skip)

    def batch_decode(self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = False) -> list[str]:
        """The text of each of several lists of ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]:
        """The text of each token: see `token`."""
        return [self.token(id) for id in ids]

    def token(self, token_id: int) -> str | None:
        """Text of one token: U+FFFD where it has a part of a character; None: there is no such token."""
        return self._native.piece(check.whole("Tokenizer.token", "token_id", token_id, 0, 2**32 - 1))

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        chat_template: str | None = None,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        **variables: Any,
    ) -> list[int] | str:
        """A conversation as a prompt: ids, or with tokenize=False the text.

        Args:
            conversation: Messages, with role and content.
            chat_template: A Jinja template in the place of the model's, or the path of a file.
            tools: Descriptions of functions, for templates that take these.
            add_generation_prompt: Whether the prompt ends with the opening of the answer.
            tokenize: Whether ids are returned.
            variables: Further variables of the template.
        """
        text, ids = self.render(conversation, chat_template, tools, add_generation_prompt, variables)
        return ids if check.boolean("apply_chat_template", "tokenize", tokenize) else text

    def block_hashes(self, token_ids: Iterable[int], cache_salt: str = "", block_size: int = 16) -> list[int]:
        """The names that a prefix cache has for the full blocks of a prompt: those that `Server.block_hashes` lists.

        Args:
            token_ids: The prompt.
            cache_salt: That of the request.
            block_size: Tokens in a block: `stats()["block_size"]`.
        """
        where = "Tokenizer.block_hashes"
        ids = check.token_ids(where, "token_ids", token_ids)
        salt = check.text(where, "cache_salt", cache_salt)
        return _llmrt.Tokenizer.block_hashes(ids, salt, check.whole(where, "block_size", block_size, 1))

    def render(
        self,
        conversation: list[dict[str, Any]],
        chat_template: Any,
        tools: Any,
        add_generation_prompt: bool,
        variables: dict[str, Any],
    ) -> tuple[str, list[int]]:
        """The text of a prompt, and its ids."""
        [messages] = _prompts.conversations(conversation)
        if tools is not None:
            variables = {**variables, "tools": tools}
        return self._native.chat(
            _prompts.as_json(messages),
            template("chat", chat_template),
            check.boolean("chat", "add_generation_prompt", add_generation_prompt),
            _prompts.to_json("chat_template_kwargs", variables),
        )

    @property
    def chat_template(self) -> str | None:
        """The model's template."""
        return self._native.chat_template

    @property
    def bos_token_id(self) -> int | None:
        """The token before a text."""
        return self._native.bos

    @property
    def eos_token_id(self) -> int | None:
        """The token after a text."""
        return self._native.eos

    @property
    def bos_token(self) -> str | None:
        """Its text."""
        return None if self.bos_token_id is None else self.token(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """Its text."""
        return None if self.eos_token_id is None else self.token(self.eos_token_id)

    @property
    def pad_token_id(self) -> int | None:
        """The token that fills."""
        return self._native.pad

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._native.n_tokens

    def __len__(self) -> int:
        return self.vocab_size
