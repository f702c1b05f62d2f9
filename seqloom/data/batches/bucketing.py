"""The batches of an epoch: bucketed by length, in random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqloom.errors import SeqloomError


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one epoch: batch i is `order[ends[i-1]:ends[i]]`."""

    order: np.ndarray  # [rows] int64
    ends: np.ndarray  # [batches] int64

    def check(self) -> None:
        """Refuse an invalid plan, for it may come from an untrusted checkpoint."""
        whole = self.order.dtype == self.ends.dtype == np.int64 and self.order.ndim == self.ends.ndim == 1
        if not whole or self.order.min(initial=0) < 0:
            raise SeqloomError("the order of the rows is no list of rows")
        if (np.diff(self.ends, prepend=0) < 0).any() or self.ends[-1:].sum() != len(self.order):
            raise SeqloomError(f"the ends of the batches do not fit {len(self.order):,} rows in order")

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> np.ndarray:
        """The rows of batch `i`."""
        if not 0 <= i < len(self.ends):
            raise IndexError(f"batch {i} of {len(self.ends)}")
        return self.order[self.ends[i - 1] if i else 0 : self.ends[i]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))


def plan(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    seed: int,
    epoch: int,
    batch_tokens: int | None = None,
    batch_rows: int | None = None,
) -> Plan:
    """Batches of examples of like length, in random order; the same (seed, epoch) gives the same plan.

    `batch_tokens` bounds rows × the wider side's padded width; `batch_rows` the rows; at least one is needed. An
    example over the limit is a batch of its own.

    Sorted by the source first: with enough data nearly every batch has one source length and needs no mask.
    """
    if not batch_tokens and not batch_rows:
        raise SeqloomError("give batch_tokens or batch_rows (1 or more): how large is a batch?")
    if min(batch_tokens or 1, batch_rows or 1) < 1:
        raise SeqloomError(f"batch_tokens and batch_rows must be 1 or more, not {batch_tokens} and {batch_rows}")
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % (1 << 64), epoch])))
    shuffled = random.permutation(len(source_lengths))
    source, target = source_lengths[shuffled].astype(np.int64), target_lengths[shuffled]
    # Target lengths rise for even source lengths and fall for odd ones, so that a batch that spans two source lengths
    # has similar target lengths. The sort is stable: ties stay shuffled.
    room = int(target.max(initial=0)) + 1
    key = source * room + np.where(source % 2, room - 1 - target, target)
    del source, target  # ten million rows are 80 MB an array
    order = shuffled[_stable_argsort(key)]
    widths = np.maximum(source_lengths, target_lengths)[order]
    ends = _batch_ends(widths, batch_tokens, batch_rows or len(order))
    return _shuffle(order, ends, random)


def padding_share(plan: Plan, source_lengths: np.ndarray, target_lengths: np.ndarray) -> float:
    """The share of padding among the tokens of all batches."""
    if not len(plan):
        return 0.0
    starts = np.concatenate([[0], plan.ends[:-1]])
    rows = plan.ends - starts
    real = padded = 0
    for lengths in (source_lengths, target_lengths):
        ordered = lengths[plan.order].astype(np.int64)
        real += int(ordered.sum())
        padded += int((np.maximum.reduceat(ordered, starts) * rows).sum())
    return 1 - real / padded


def _stable_argsort(key: np.ndarray) -> np.ndarray:
    """np.argsort(key, kind="stable"). Sorting keys with the index in their low bits is several times as fast."""
    bits = max(1, len(key) - 1).bit_length()
    if int(key.max(initial=0)) >> (63 - bits):
        return np.argsort(key, kind="stable")
    key = (key << bits) | np.arange(len(key))
    key.sort()
    return key & ((1 << bits) - 1)


def _batch_ends(widths: np.ndarray, tokens: int | None, rows: int) -> np.ndarray:
    """The ends of batches that each take as many examples as fit."""
    if tokens is None:
        return np.minimum(np.arange(rows, len(widths) + rows, rows, dtype=np.int64), len(widths))
    ends: list[int] = []
    first = 0
    changes = np.append(np.flatnonzero(np.diff(widths)) + 1, len(widths))  # ends of runs of equal width
    run = 0
    while first < len(widths):
        width = int(widths[first])
        most = max(1, min(rows, tokens // width)) if width else rows
        while changes[run] <= first:
            run += 1
        full = (int(changes[run]) - first) // most
        if full:  # whole batches of one width, all at once
            ends.extend(range(first + most, first + full * most + 1, most))
            first += full * most
            continue
        widest = np.maximum.accumulate(widths[first : first + most])
        # The cost rises with every row, so the rows that fit are a prefix.
        fit = int(np.searchsorted(widest * np.arange(1, len(widest) + 1), tokens, side="right"))
        first += max(1, fit)
        ends.append(first)
    return np.array(ends, dtype=np.int64)


def _shuffle(order: np.ndarray, ends: np.ndarray, random: np.random.Generator) -> Plan:
    """The same batches in random order."""
    if not len(ends):
        return Plan(order, ends)
    starts = np.concatenate([[0], ends[:-1]])
    shuffled = random.permutation(len(ends))
    sizes = (ends - starts)[shuffled]
    new_ends = np.cumsum(sizes)
    places = np.arange(len(order)) + np.repeat(starts[shuffled] - (new_ends - sizes), sizes)
    return Plan(order[places], new_ends)
