"""Collating: examples of unequal length to padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.errors import known

Item = TypeVar("Item")
SHORT = 32  # tokens; up to here a mask costs less than another shape


@dataclass(frozen=True, eq=False)
class Padded:
    """Rows of tokens padded to the longest. Lengths are passed instead of masks, on the device and on the host."""

    tokens: Tensor  # [B, S] int64
    lengths: Tensor  # [B] int64, same device as tokens
    host: tuple[int, ...]  # the same lengths on the host, where packing for RNNs needs them
    full: bool = field(init=False)  # every row is as long as the widest: no mask is needed

    def __post_init__(self) -> None:
        # Computed here: inside a compiled function it would recompile for other lengths.
        width = self.tokens.shape[1]
        object.__setattr__(self, "full", all(length == width for length in self.host))

    def to(self, device: torch.device | str) -> Padded:
        return Padded(send(self.tokens, device), send(self.lengths, device), self.host)

    def part(self, first: int, last: int) -> Padded:
        """Rows `first` to `last` (not included), trimmed to their own longest. For rows padded after."""
        host = self.host[first:last]
        tokens = self.tokens[first:last, : max(host, default=0)].contiguous()
        return Padded(tokens, self.lengths[first:last], host)

    def twice(self) -> Padded:
        """All rows twice."""
        return Padded(self.tokens.repeat(2, 1), self.lengths.repeat(2), 2 * self.host)

    def pad_to(self, width: int) -> Padded:
        """Padded up to `width`."""
        more = width - self.tokens.shape[1]
        return replace(self, tokens=F.pad(self.tokens, (0, more), value=PAD)) if more > 0 else self

    def pad_to_bucket(self, most: int | None = None) -> Padded:
        """Padded to one of few widths, at most `most`. Long rows that need no mask stay as they are."""
        width = self.tokens.shape[1]
        if self.full and width > SHORT:
            return self
        return self.pad_to(bucket_width(width, most))


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step reads; rows are padded after."""

    source: Padded  # x1 … xn <eos>
    target: Padded  # <bos> y1 … yn <eos>
    index: Tensor  # [N] int64: flat places of the real labels in the [B, T-1] matrix target.tokens[:, 1:], row-major
    rows: tuple[int, ...]  # which examples of the corpus
    padding: int = 0  # positions of <pad> at the end of `index`, for a bucketed size

    @property
    def count(self) -> int:
        """The number of real labels."""
        return self.index.size(0) - self.padding

    @classmethod
    def of(cls, source: Padded, target: Padded, rows: tuple[int, ...] | None = None) -> Batch:
        """Join both sides. `index` is computed on the host: on a GPU it would wait for the device."""
        labels = np.asarray(target.host, dtype=np.int64) - 1
        keep = np.arange(max(target.tokens.shape[1] - 1, 0)) < labels[:, None]
        index = send(torch.from_numpy(np.flatnonzero(keep)), target.tokens.device)
        return cls(source, target, index, tuple(range(len(labels))) if rows is None else rows)

    def to(self, device: torch.device | str) -> Batch:
        index = send(self.index, device)
        return replace(self, source=self.source.to(device), target=self.target.to(device), index=index)

    def pad_to_bucket(self, most: int | None = None) -> Batch:
        """The same in one of few shapes. `most`: longest allowed side."""
        if not self.rows:
            return self
        source = self.source.pad_to_bucket(most)
        target = self.target.pad_to(bucket_width(self.target.tokens.shape[1] - 1, most) + 1)
        made = Batch.of(source, target, self.rows)
        places = target.tokens.size(0) * (target.tokens.shape[1] - 1)
        more = min(bucket_size(made.count), places) - made.count
        if not more:
            return made
        row = int(np.argmin(target.host))
        pad = row * (target.tokens.shape[1] - 1) + target.host[row] - 1  # the first place after the shortest row's end
        return replace(made, index=F.pad(made.index, (0, more), value=pad), padding=more)

    def twice(self) -> Batch:
        """All rows twice, `index` too, with its padding at the end of each half."""
        labels = self.target.tokens.size(0) * (self.target.tokens.size(1) - 1)
        index = torch.cat([self.index, self.index + labels])
        return Batch(self.source.twice(), self.target.twice(), index, 2 * self.rows, 2 * self.padding)

    def zero_weight_row(self) -> Batch:
        """A row without a label: its loss is an empty sum, and every parameter still gets a gradient, of zeros."""
        return Batch(self.source.part(0, 1), self.target.part(0, 1), self.index[:0], ())

    def micro_batches(self, n: int) -> list[Batch]:
        """The rows cut into at most `n` nearly equal parts, each trimmed to its own longest: micro-batches."""
        parts = split_points(len(self.rows), n)
        return [Batch.of(self.source.part(a, b), self.target.part(a, b), self.rows[a:b]) for a, b in parts] or [self]


def pad(sequences: Sequence[Sequence[int] | np.ndarray], where: str = "after", value: int = PAD) -> Padded:
    """Rows of one width: `value` is filled in after (or before) each sequence, up to the longest.

    Models and `Batch` read rows padded after. "before" is for prompts that must end in one column.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in sequences]) if len(sequences) else lengths
    return pad_flat(flat, lengths, where, value)


def pad_flat(flat: np.ndarray, lengths: np.ndarray, where: str = "after", value: int = PAD) -> Padded:
    """As `pad`, for sequences concatenated in one array."""
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


def split_points(total: int, n: int) -> list[tuple[int, int]]:
    """(start, end) of at most `n` nearly equal parts of `total` rows; empty if they stay whole."""
    if n < 1:
        raise ValueError(f"a batch can be cut into 1 or more pieces, not {n}")
    n = min(n, total)
    return list(pairwise(total * part // n for part in range(n + 1))) if n > 1 else []


def bucket_size(number: int, steps: int = 8, least: int = 1) -> int:
    """Round up to one of `steps` values between powers of two, at least `least` apart."""
    step = max(least, (1 << max(number - 1, 0).bit_length()) // (2 * steps))
    return -(-number // step) * step


def bucket_width(width: int, most: int | None = None) -> int:
    """Round a width up to one of few, at most `most` unless it is wider already."""
    found = bucket_size(width, least=4)
    return found if most is None else max(width, min(found, most))


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy to the device without waiting for its queue."""
    kind = torch.device(device).type
    if kind == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()  # copies from pageable memory wait for the queue
    # Never asynchronous to the host: values would be read before they arrive.
    return tensor.to(device, non_blocking=kind != "cpu")
