"""Pairs of rows of ids in the cache, as batches."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.collate import Batch, Padded, pad_flat
from seqloom.data.encoding.encode import Rows, index_ranges
from seqloom.data.encoding.mmap_store import load_rows


class PairSource:
    """Rows of ids: sources end in <eos>, targets stand between <bos> and <eos>."""

    def __init__(self, folder: Path, name: str, fingerprint: str):
        self.fingerprint = fingerprint  # of the data and of how it was encoded, not of where it lies
        self.folder = folder
        self._source = load_rows(folder, f"{name}_source")
        self._target = load_rows(folder, f"{name}_target")

    def __len__(self) -> int:
        return len(self._source[1]) - 1

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """[rows] int32, <eos> included."""
        return np.diff(self._source[1]).astype(np.int32)

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """[rows] int32, <bos> and <eos> included."""
        return np.diff(self._target[1]).astype(np.int32)

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        """Batches of examples of like length: see `bucketing.plan`."""
        lengths = (self.source_lengths, self.target_lengths)
        return plan(*lengths, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)

    def count(self, rows: np.ndarray) -> int:
        """Target tokens to be predicted, <eos> among them."""
        return int(self.target_lengths[rows].sum()) - len(rows)

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: padded tokens of both sides."""
        starts = np.concatenate([[0], plan.ends[:-1]])
        lengths = (self.source_lengths, self.target_lengths)
        source, target = (np.maximum.reduceat(side[plan.order], starts) for side in lengths)
        return (source.astype(np.int64) + target) * (plan.ends - starts)

    def batch(self, rows: np.ndarray) -> Batch:
        """The examples `rows`, in this order, on the host."""
        rows = np.asarray(rows, dtype=np.int64)
        return Batch.of(self.sources(rows), _gather(*self._target, rows), tuple(rows.tolist()))

    def sources(self, rows: np.ndarray) -> Padded:
        """Only their sources."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of a corpus of {len(self)}")
        return _gather(*self._source, rows)

    def targets(self) -> Rows:
        """All targets at once, without <bos> and <eos>."""
        ids, offsets = self._target
        real = np.ones(len(ids), bool)
        real[offsets[:-1]] = real[offsets[1:] - 1] = False
        return Rows(ids[real], self.target_lengths.astype(np.int64) - 2)


def _gather(ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> Padded:
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    return pad_flat(ids[index_ranges(starts, lengths)], lengths)
