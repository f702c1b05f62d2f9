"""One vector a text, from any model whose encoder reads text; and texts that are near each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches.collate import cut, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, UNK
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError, known
from seqloom.models.protocols import Encoded
from seqloom.parts.visibility import last, mean

POOLINGS = ("mean", "summary")
QUERY_BLOCK = 1 << 10  # queries whose neighbours are looked for at a time
SORTED_BATCHES = 16  # batches whose texts are sorted by length


class Embedder(NamedTuple):
    """A model's source side, and how one vector is made of its states.

    `way`: "mean" of the states of all tokens, or the encoder's own "summary". `layer`: which layer's states, from 1;
    None: the last as the model uses it.
    """

    model: nn.Module
    codec: Codec
    device: torch.device
    way: str = "mean"
    layer: int | None = None
    max_length: int | None = None
    drop: str = "tail"  # of longer texts
    before: tuple[int, ...] = ()  # what stood before and after each text in training
    after: tuple[int, ...] = (EOS,)

    @classmethod
    def of(cls, runner: Any, codec: Codec, way: str = "mean", layer: int | None = None) -> Embedder:
        """Of a loaded run."""
        model = runner.model
        if not (hasattr(model, "source") and hasattr(model, "encoder")):
            raise SeqloomError(f"{runner.folder}: its model has no encoder of texts; embed takes one that has")
        if getattr(getattr(model, "characters", None), "dim", 0):
            raise SeqloomError(
                f"{runner.folder}: its encoder reads words with their characters; train with characters=none"
            )
        if layer is not None and known(way, POOLINGS, "way to embed") == "summary":
            raise SeqloomError("--layer chooses states to take the mean of; the summary is of the last layer")
        data, device = runner.config["data"], next(model.parameters()).device
        limits = data.get("max_length"), data.get("truncate", "tail")
        return cls(
            model, codec, device, known(way, POOLINGS, "way to embed"), layer, *limits, *_special_tokens(runner, codec)
        )

    @torch.inference_mode()
    def __call__(self, texts: Iterable[str], rows: int = 64) -> Iterator[np.ndarray]:
        """A vector [dim] float32 for each text, in order, as a stream."""
        self.model.eval()
        texts = iter(texts)
        while chunk := list(islice(texts, SORTED_BATCHES * rows)):
            encoded = [self._encode(text) for text in chunk]
            order = sorted(range(len(chunk)), key=lambda i: len(encoded[i]))
            found: dict[int, np.ndarray] = {}
            for start in range(0, len(order), rows):
                batch = order[start : start + rows]
                vectors = self._vectors([encoded[i] for i in batch]).float().cpu().numpy()
                found |= dict(zip(batch, vectors, strict=True))
            yield from (found[i] for i in range(len(chunk)))

    def matrix(self, texts: Sequence[str]) -> np.ndarray:
        """[texts, dim]"""
        return np.stack(list(self(texts)))

    def _encode(self, text: str) -> list[int]:
        """The ids a text is read as, one at least: of running text, nothing is a line end."""
        ids = [*self.before, *cut(self.codec.encode(text), self.max_length, self.drop), *self.after]
        return ids or self.codec.encode("\n") or [UNK]

    def _vectors(self, rows: list[list[int]]) -> Tensor:
        source = pad(rows).to(self.device)
        lengths = None if source.full else source.lengths
        encoded = self._encoded(self.model.source(source.tokens), lengths)  # pyright: ignore
        if self.way == "summary":
            return encoded.summary
        layers = encoded.layers
        if self.layer is not None and not 1 <= self.layer <= len(layers):
            raise SeqloomError(f"--layer {self.layer}: the encoder has layers 1 to {len(layers)}")
        return mean(encoded.states if self.layer is None else layers[self.layer - 1], lengths)

    def _encoded(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        encoder: Any = self.model.encoder
        if not hasattr(encoder, "begin"):
            return encoder(x, lengths)
        states, _ = encoder(x)  # of a language model, which reads from left to right: what is padded comes after
        return Encoded(states=states, lengths=lengths, summary=last(states, lengths), layers=(states,))


def _special_tokens(runner: Any, codec: Codec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stood before and after a text in training. A language model knows <eos> where it read lines, or words, and
    <bos> where it read lines without labels; an embedded text has no label."""
    if runner.config["task"] != "generate":
        return (), (EOS,)
    options = runner.options
    if options.lines:
        return () if options.condition else (BOS,), (EOS,)
    return (), (EOS,) if codec.kind == "words" else ()


class Neighbors(NamedTuple):
    """For each query, the rows of its nearest and how near they are, nearest first."""

    rows: np.ndarray  # [queries, K]
    cosines: np.ndarray  # [queries, K]


def nearest(queries: np.ndarray, among: np.ndarray, k: int, *, same: bool = False) -> Neighbors:
    """The `k` rows of `among` with the largest cosine, exactly; `same`: both are one matrix, and no row counts as near
    itself."""
    if k < 1:
        raise SeqloomError(f"--nearest is at least 1, here {k}")
    k = min(k, len(among) - same)
    if k < 1:
        raise SeqloomError("there is no other line to be near")
    ours, theirs = (F.normalize(torch.from_numpy(table), dim=-1) for table in (queries, among))
    rows, cosines = [], []
    for start in range(0, len(ours), QUERY_BLOCK):
        likeness = ours[start : start + QUERY_BLOCK] @ theirs.T
        if same:
            likeness.diagonal(start).fill_(-2.0)
        best = likeness.topk(k)
        rows.append(best.indices.numpy())
        cosines.append(best.values.numpy())
    return Neighbors(np.concatenate(rows), np.concatenate(cosines))


def recall(left: np.ndarray, right: np.ndarray, at: Sequence[int] = (1, 10)) -> dict[str, float]:
    """`recall@k` in percent: for how many rows of `left` the same row of `right` is among the `k` nearest there."""
    if len(left) != len(right):
        raise SeqloomError(f"{len(left):,} texts on one side and {len(right):,} on the other: a pair has one of each")
    found = nearest(left, right, max(at)).rows == np.arange(len(left))[:, None]
    return {f"recall@{k}": 100 * float(found[:, :k].any(1).mean()) for k in at}
