"""From text to text: encode, batch by length, search, decode, and return the answers in the order of the input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from seqloom.data.batches.collate import cut, pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq

LONG = 10_000  # tokens of a source that cause a warning


def may_be_long(text: str) -> bool:
    """Whether a text can have more than `LONG` tokens, before it is encoded: a character is at most four bytes."""
    return 4 * len(text) > LONG


def warn_of_long(sources: Iterable[Any], length: Callable[[Any], int], warn: Callable[[str], object]) -> Iterator[Any]:
    """The sources unchanged; warns once, before the first with more than `LONG` tokens, which may take an hour."""
    warned = False
    for number, source in enumerate(sources, 1):
        if not warned and (count := length(source)) > LONG:
            warned = True
            cost = "time and memory may grow with the square of that"
            way = "a model that is trained with --max-length cuts what is longer"
            warn(f"source {number:,} has {count:,} tokens: {cost}; {way}")
        yield source


@dataclass(frozen=True)
class Answer:
    """One prediction: its text, its tokens, and how sure the model is of it.

    `confidence` is the geometric mean of the probabilities of its tokens, <eos> among them: 0 … 1, whatever the length.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    log_probability: float
    confidence: float


@dataclass(frozen=True)
class LengthLimit:
    """How many tokens a target may get, from the training data: by the source's length, and an upper limit for all.

    An imported model brings its own: a `limit` for every source, and what Search calls `first`, `close` and `never`.
    """

    ratio: float
    longest: int
    limit: int | None = None
    first: int | None = None
    close: bool = False
    never: Sequence[int] = ()

    def __call__(self, source_length: int) -> int:
        if self.limit is not None:
            return self.limit
        return max(1, min(math.ceil(self.ratio * source_length) + 10, math.ceil(1.25 * self.longest) + 10))


@dataclass(frozen=True, eq=False)
class TextPredictor:
    """A model with its source and target vocabularies: texts in, answers out."""

    model: Seq2Seq
    source: Codec
    target: Codec
    bound: LengthLimit
    device: torch.device
    max_length: int | None = None
    cut: str = "tail"

    def answers(self, texts: Iterable[str], search: Search, rows: int = 64, ahead: int = 16) -> Iterator[list[Answer]]:
        """The best answers to each text, in order; a stream is read `ahead` batches of `rows` at a time."""
        if rows < 1:
            raise SeqloomError(f"a batch has at least 1 row, here {rows}")
        self.model.eval()
        # Completed by what the model itself requires.
        first = self.bound.first if search.first is None else search.first
        close, never = search.close or self.bound.close, (*search.never, *self.bound.never)
        search = replace(search, first=first, close=close, never=never)
        texts, done = iter(texts), 0
        while chunk := list(islice(texts, ahead * rows)):
            yield from self._chunk(chunk, search, rows, done)
            done += len(chunk)

    def _chunk(self, texts: list[str], search: Search, rows: int, done: int) -> list[list[Answer]]:
        """Answers in the order of `texts`, though these are decoded by length. `done`: how many texts came before."""
        encoded = [self.encode(text) for text in texts]
        answers: list[list[Answer]] = [[Answer("", (), 0.0, 0.0, 1.0)] for _ in texts]  # an empty line has no other
        by_length = sorted((i for i, text in enumerate(texts) if text.strip()), key=lambda i: len(encoded[i]))
        for start in range(0, len(by_length), rows):
            batch = by_length[start : start + rows]
            limits = [self.bound(len(encoded[i])) for i in batch]
            decoded = self.decoded([encoded[i] for i in batch], limits, search, [done + i for i in batch])
            for i, limit, hypotheses in zip(batch, limits, decoded, strict=True):
                answers[i] = [self._answer(hypothesis, limit) for hypothesis in hypotheses]
        return answers

    def decoded(
        self, sources: Sequence[list[int]], limits: list[int], search: Search, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, of at most `limits` tokens; `indices`: positions in the input."""
        return decode(self.model, pad(sources).to(self.device), limits, search, indices)

    def encode(self, text: str) -> list[int]:
        """As the training data was encoded: truncated if too long, ended by <eos>."""
        return [*cut(self.source.encode(text), self.max_length, self.cut), EOS]

    def _answer(self, best: Hypothesis, limit: int) -> Answer:
        steps = min(len(best.tokens) + 1, limit)  # an answer that was cut off at the limit has no <eos>
        text, confidence = self.target.decode(best.tokens), math.exp(best.log_probability / steps)
        return Answer(text, best.tokens, best.score, best.log_probability, confidence)
