"""Texts without targets as rows of ids, long ones split into chunks."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from seqloom.data.batches.collate import Padded, pad_flat
from seqloom.data.encoding.encode import Rows, index_ranges
from seqloom.data.tokenizers.tokenizers import EOS


class ChunkedTexts:
    """Rows of ids, each ended by <eos>: a flat array and offsets."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, fingerprint: str = "", folder: Path | None = None) -> None:
        self.ids, self.offsets, self.fingerprint, self.folder = ids, offsets, fingerprint, folder

    @classmethod
    def of(cls, rows: Rows, max_length: int | None = None) -> ChunkedTexts:
        """From texts as rows of ids without specials."""
        ended = split_long_rows(rows, max_length).with_specials((), (EOS,))
        return cls(ended.ids, np.concatenate([[0], np.cumsum(ended.lengths)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """[rows] int64, <eos> included."""
        return np.diff(self.offsets)

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Flat positions of all tokens of `rows`, and the length of each row."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        return index_ranges(self.offsets[rows], self.lengths[rows]), self.lengths[rows]

    def padded(self, rows: np.ndarray) -> Padded:
        places, lengths = self.gather(rows)
        return pad_flat(self.ids[places], lengths)


def split_long_rows(rows: Rows, limit: int | None) -> Rows:
    """Split rows over `limit` into parts of nearly equal length; drop empty ones."""
    rows = rows.select(rows.lengths > 0)
    if limit is None or not len(rows.lengths):
        return rows
    counts = -(-rows.lengths // limit)
    each, more = np.repeat(rows.lengths // counts, counts), np.repeat(rows.lengths % counts, counts)
    return Rows(rows.ids, each + (index_ranges(np.zeros(len(counts), np.int64), counts) < more))
