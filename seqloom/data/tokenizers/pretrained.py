"""Tokens of a pretrained tokenizer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from seqloom.errors import SeqloomError


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """The library panics on some broken tokenizers, which is no Exception; raise a ValueError instead."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error


class PretrainedTokenizer:
    """A pretrained tokenizer from its `tokenizer.json` (Moi & Patry 2023, Hugging Face tokenizers).

    It comes with an imported model and cannot be trained. Tokens that it adds before a text, such as BART's <s>, stay;
    its end token is removed, since the caller adds <eos>. It normalizes text itself.
    """

    def __init__(self, tokenizer: dict[str, Any] | None) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = tokenizer
        if tokenizer is not None:
            with _panics_as_errors():
                self.model = Tokenizer.from_str(json.dumps(tokenizer))
                self.model.no_padding()
                self.model.no_truncation()
                self.names = {number: token for token, number in self.model.get_vocab().items()}
                self.end = next(reversed(self.model.encode("").ids), None)

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        raise SeqloomError("tokens 'tokenizer' come with an imported model; choose chars, words, bytes or bpe:N")

    def split(self, text: str) -> list[str]:
        try:
            numbers = self.model.encode(text).ids
        except Exception as error:  # the library raises nothing more precise
            raise SeqloomError(f"the tokenizer of this model cannot cut {text[:80]!r}: {error}") from error
        return [self.names[number] for number in (numbers[:-1] if numbers[-1:] == [self.end] else numbers)]

    def join(self, tokens: list[str]) -> str:
        numbers = (self.model.token_to_id(token) for token in tokens)
        return self.model.decode([number for number in numbers if number is not None])

    def show(self, token: str) -> str:
        return token

    def to_json(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer}


def prepend_tokens(stored: dict[str, Any], names: list[str], shift: int, end: tuple[int | None, int]) -> dict[str, Any]:
    """A tokenizer.json with `names` as the tokens `shift`, `shift` + 1, … and its own after them, in their order.

    `end` is (old, new): the id of the end token in its template, and the id that replaces it.
    """
    made, own = copy.deepcopy(stored), shift + len(names)
    model, added = made["model"], made["added_tokens"]
    extra = {token["content"]: token["id"] for token in added}
    if isinstance(model["vocab"], dict):
        old = model["vocab"] | extra
        model["vocab"] = dict(zip(names, range(shift, own), strict=True)) | {t: n + own for t, n in old.items()}
    else:  # Unigram: a list in the order of the ids, with a score each; score 0 for tokens that no text contains
        listed = {token for token, _ in model["vocab"]}
        late = sorted((number, token) for token, number in extra.items() if token not in listed)
        first = [f"<unused {number}>" for number in range(shift)] + names
        model["vocab"] = [*([token, 0.0] for token in first), *model["vocab"], *([token, 0.0] for _, token in late)]
        model["unk_id"] = None if model["unk_id"] is None else model["unk_id"] + own
    for token in added:
        token["id"] += own
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    made["added_tokens"] = [{"id": shift + n, "content": name, **plain} for n, name in enumerate(names)] + added
    _map_ids(made.get("post_processor"), lambda number: end[1] if number == end[0] else number + own)
    return made


def _map_ids(processor: dict[str, Any] | None, number: Callable[[int], int]) -> None:
    """Map the ids of any post-processor, in place."""
    if processor is None:
        return
    for inner in processor.get("processors", ()):
        _map_ids(inner, number)
    for name in ("sep", "cls"):
        if name in processor:
            processor[name] = [processor[name][0], number(processor[name][1])]
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [number(one) for one in token["ids"]]
