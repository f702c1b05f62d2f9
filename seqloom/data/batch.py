"""Examples of unequal length as matrices of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from seqloom.data.tokens import PAD
from seqloom.errors import known

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Padded:
    """Rows of tokens filled up to the longest. Lengths travel, not masks: on the device and on the host."""

    tokens: Tensor  # [B, S] int64
    lengths: Tensor  # [B] int64, same device as tokens
    host: tuple[int, ...]  # the same lengths on the host: packing an RNN needs them there

    @property
    def full(self) -> bool:
        """Every row is as long as the widest: no mask is needed."""
        width = self.tokens.shape[1]
        return all(length == width for length in self.host)

    def to(self, device: torch.device | str) -> Padded:
        return Padded(send(self.tokens, device), send(self.lengths, device), self.host)

    def part(self, first: int, last: int) -> Padded:
        """Rows `first` to `last` (not included), trimmed to their own longest. For rows padded after."""
        host = self.host[first:last]
        tokens = self.tokens[first:last, : max(host, default=0)].contiguous()
        return Padded(tokens, self.lengths[first:last], host)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step reads; rows are padded after."""

    source: Padded  # x1 … xn <eos>
    target: Padded  # <bos> y1 … yn <eos>
    index: Tensor  # [N] int64: flat places of the real labels in the [B, T-1] matrix target.tokens[:, 1:], row-major
    rows: tuple[int, ...]  # which examples of the corpus

    @classmethod
    def of(cls, source: Padded, target: Padded, rows: tuple[int, ...] | None = None) -> Batch:
        """Join both sides. `index` is made on the host: on a GPU, finding it would wait for the device."""
        labels = np.asarray(target.host, dtype=np.int64) - 1
        keep = np.arange(max(target.tokens.shape[1] - 1, 0)) < labels[:, None]
        index = send(torch.from_numpy(np.flatnonzero(keep)), target.tokens.device)
        return cls(source, target, index, tuple(range(len(labels))) if rows is None else rows)

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.source.to(device), self.target.to(device), send(self.index, device), self.rows)

    def emptied(self) -> Batch:
        """A row without a label: its loss is an empty sum, and every parameter still gets a gradient, of zeros."""
        return Batch(self.source.part(0, 1), self.target.part(0, 1), self.index[:0], ())

    def pieces(self, n: int) -> list[Batch]:
        """The rows cut into at most `n` nearly equal parts, each trimmed to its own longest: micro-batches."""
        parts = cuts(len(self.rows), n)
        return [Batch.of(self.source.part(a, b), self.target.part(a, b), self.rows[a:b]) for a, b in parts] or [self]


def pad(sequences: Sequence[Sequence[int] | np.ndarray], where: str = "after", value: int = PAD) -> Padded:
    """Rows of one width: `value` is filled in after (or before) each sequence, up to the longest.

    Models and `Batch` read rows padded after. "before" is a tool for your own code, as for prompts that must end in
    one column.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in sequences]) if len(sequences) else lengths
    return pad_flat(flat, lengths, where, value)


def pad_flat(flat: np.ndarray, lengths: np.ndarray, where: str = "after", value: int = PAD) -> Padded:
    """As `pad`, for sequences that already stand one after the other in one array: a single scatter."""
    width = int(lengths.max(initial=0))
    places = np.arange(width)
    if known(where, ("after", "before"), "side to pad") == "after":
        keep = places < lengths[:, None]
    else:
        keep = places >= width - lengths[:, None]
    tokens = np.full(keep.shape, value, dtype=np.int64)
    tokens[keep] = flat
    lengths = lengths.astype(np.int64)
    return Padded(torch.from_numpy(tokens), torch.from_numpy(lengths), tuple(lengths.tolist()))


def cut(sequence: Sequence[Item], limit: int | None, drop: str = "tail") -> Sequence[Item]:
    """At most `limit` items. drop="tail" loses the end of the sequence, drop="head" its beginning."""
    known(drop, ("head", "tail"), "end to drop")
    if limit is None or len(sequence) <= limit:
        return sequence
    return sequence[:limit] if drop == "tail" else sequence[len(sequence) - limit :]


def cuts(total: int, n: int) -> list[tuple[int, int]]:
    """Where to cut `total` rows into at most `n` nearly equal parts; none where they stay whole."""
    if n < 1:
        raise ValueError(f"a batch can be cut into 1 or more pieces, not {n}")
    n = min(n, total)
    return list(pairwise(total * piece // n for piece in range(n + 1))) if n > 1 else []


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """To the device, without waiting for what it has to do before."""
    # Never asynchronous towards the host: numbers would be read before they have arrived.
    return tensor.to(device, non_blocking=torch.device(device).type != "cpu")
