"""From text to text: encode, batch by length, search, decode, and give the answers back in the order asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch

from seqloom.data.batches.collate import cut, pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.search import Hypothesis, Search, decode
from seqloom.errors import SeqloomError
from seqloom.fast.cuda_graphs.replay import Replays
from seqloom.models.seq2seq import Seq2Seq

LONG = 10_000  # tokens of a source that are worth a word


def may_be_long(text: str) -> bool:
    """Before it is cut: a character is at most four tokens, its bytes."""
    return 4 * len(text) > LONG


def watched(sources: Iterable[Any], length: Callable[[Any], int], told: Callable[[str], object]) -> Iterator[Any]:
    """The sources as they pass. Of the first with more than `LONG` tokens it is told before it is read, which may take
    an hour; of further ones it is not."""
    heard = False
    for number, source in enumerate(sources, 1):
        if not heard and (count := length(source)) > LONG:
            heard = True
            cost = "time and memory may grow with the square of that"
            way = "a model that is trained with --max-length cuts what is longer"
            told(f"source {number:,} has {count:,} tokens: {cost}; {way}")
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
class Bound:
    """How long a target may get, learned from the training data: a share of the source, and a length for all.

    An imported model has its own say: a `limit` for every source, and what Search calls `first`, `close` and `never`.
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
class Texts:
    """A model with its two codecs."""

    model: Seq2Seq
    source: Codec
    target: Codec
    bound: Bound
    device: torch.device
    max_length: int | None = None
    cut: str = "tail"
    replays: Replays = field(default_factory=Replays)  # how a GPU decodes, where it can

    def answers(self, texts: Iterable[str], search: Search, rows: int = 64, ahead: int = 16) -> Iterator[list[Answer]]:
        """The best answers to each text, in order. Works through a stream: reads ahead `ahead` batches of `rows`."""
        if rows < 1:
            raise SeqloomError(f"a batch has at least 1 row, here {rows}")
        self.model.eval()
        search = self._ruled(search)
        texts, done = iter(texts), 0
        while chunk := list(islice(texts, ahead * rows)):
            yield from self._chunk(chunk, search, rows, done)
            done += len(chunk)

    def _chunk(self, texts: list[str], search: Search, rows: int, done: int) -> list[list[Answer]]:
        """Answers in the order asked, whatever the order in which they are found. `done`: texts before these."""
        encoded = [self.encode(text) for text in texts]
        found: list[list[Answer]] = [[Answer("", (), 0.0, 0.0, 1.0)] for _ in texts]  # nothing is said of an empty line
        asked = sorted((i for i, text in enumerate(texts) if text.strip()), key=lambda i: len(encoded[i]))
        for start in range(0, len(asked), rows):
            batch = asked[start : start + rows]
            limits = [self.bound(len(encoded[i])) for i in batch]
            decoded = self.decoded([encoded[i] for i in batch], limits, search, [done + i for i in batch])
            for i, limit, hypotheses in zip(batch, limits, decoded, strict=True):
                found[i] = [self._answer(hypothesis, limit) for hypothesis in hypotheses]
        return found

    def decoded(
        self, sources: Sequence[list[int]], limits: list[int], search: Search, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, of at most so many tokens; `numbers`: their places among all asked."""
        return decode(self.model, pad(sources).to(self.device), limits, search, numbers, self.replays)

    def encode(self, text: str) -> list[int]:
        """As the training data was: cut if it is too long, ended by <eos>."""
        return [*cut(self.source.encode(text), self.max_length, self.cut), EOS]

    def _ruled(self, search: Search) -> Search:
        """The search with what the model itself asks for, where the search leaves it open."""
        first = self.bound.first if search.first is None else search.first
        close, never = search.close or self.bound.close, (*search.never, *self.bound.never)
        return replace(search, first=first, close=close, never=never)

    def _answer(self, found: Hypothesis, limit: int) -> Answer:
        steps = min(len(found.tokens) + 1, limit)  # an answer that was cut off at the limit has no <eos>
        text, confidence = self.target.decode(found.tokens), math.exp(found.log_probability / steps)
        return Answer(text, found.tokens, found.score, found.log_probability, confidence)
