"""Tokens as somebody else's tokenizer cuts them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from seqloom.errors import SeqloomError


class Wrapped:
    """Somebody else's tokenizer as its `tokenizer.json` says it (Moi & Patry 2023, Hugging Face tokenizers).

    It came with an imported model and cannot be trained. What it puts before a text, as BART's <s>, stays; the end it
    puts after it goes, since <eos> is added by whoever calls. It normalises text by itself.
    """

    def __init__(self, tokenizer: dict[str, Any] | None) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = tokenizer
        if tokenizer is not None:
            self.model = Tokenizer.from_str(json.dumps(tokenizer))
            self.model.no_padding()
            self.model.no_truncation()
            self.names = {number: token for token, number in self.model.get_vocab().items()}
            self.end = next(reversed(self.model.encode("").ids), None)

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        raise SeqloomError("tokens 'tokenizer' come with an imported model; choose chars, words, bytes or bpe:N")

    def split(self, text: str) -> list[str]:
        numbers = self.model.encode(text).ids
        return [self.names[number] for number in (numbers[:-1] if numbers[-1:] == [self.end] else numbers)]

    def join(self, tokens: list[str]) -> str:
        numbers = (self.model.token_to_id(token) for token in tokens)
        return self.model.decode([number for number in numbers if number is not None])

    def show(self, token: str) -> str:
        return token

    def to_json(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer}
