"""Numbered examples on disk: one flat array of ids for each side, and where each row ends. Memory-mapped, never loaded.

Ten million pairs take about a gigabyte of disk and next to no memory, and start in no time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType

import numpy as np

from seqloom.data.batch import Batch, Padded, pad_flat
from seqloom.data.tokens import BOS, EOS

_CHUNK = 1 << 16  # numbers kept in memory before they are written


class Corpus:
    """Rows of ids: sources end in <eos>, targets stand between <bos> and <eos>."""

    def __init__(self, folder: Path, name: str, fingerprint: str):
        self.fingerprint = fingerprint  # of the data and of how it was numbered, not of where it lies
        self.folder = folder
        self._source = _load(folder, f"{name}_source")
        self._target = _load(folder, f"{name}_target")

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

    def batch(self, rows: np.ndarray) -> Batch:
        """The examples `rows`, in this order, on the host."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of a corpus of {len(self)}")
        return Batch.of(_gather(*self._source, rows), _gather(*self._target, rows), tuple(rows.tolist()))


class Writer:
    """Writes a `Corpus` row by row; keeps only small buffers."""

    def __init__(self, folder: Path, name: str):
        self.rows = 0
        self._source = _Side(folder, f"{name}_source")
        self._target = _Side(folder, f"{name}_target")

    def add(self, source: Sequence[int], target: Sequence[int]) -> None:
        """One row, without specials."""
        self._source.add([*source, EOS])
        self._target.add([BOS, *target, EOS])
        self.rows += 1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        try:
            self._source.close()
        finally:
            self._target.close()


class _Side:
    def __init__(self, folder: Path, name: str):
        self._ids = _Growing(folder / f"{name}_ids.npy", "i", np.int32)
        self._offsets = _Growing(folder / f"{name}_offsets.npy", "q", np.int64)
        self._offsets.extend([0])
        self._total = 0

    def add(self, ids: list[int]) -> None:
        self._total += len(ids)
        self._ids.extend(ids)
        self._offsets.extend((self._total,))

    def close(self) -> None:
        try:
            self._ids.close()
        finally:
            self._offsets.close()


class _Growing:
    """A one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, path: Path, code: str, dtype: type):
        self._buffer, self._dtype, self._length = array(code), np.dtype(dtype), 0
        self._file = path.open("wb")
        self._header()

    def extend(self, numbers: Sequence[int]) -> None:
        self._buffer.extend(numbers)
        if len(self._buffer) >= _CHUNK:
            self._flush()

    def close(self) -> None:
        with self._file:
            self._flush()
            start = self._data
            self._file.seek(0)
            self._header()
            if self._data != start:  # numpy leaves room in the header for the length to grow
                raise ValueError("the header of the .npy file outgrew its place")

    def _flush(self) -> None:
        self._file.write(self._buffer)
        self._length += len(self._buffer)
        del self._buffer[:]

    def _header(self) -> None:
        shape = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_2_0(self._file, shape)
        self._data = self._file.tell()


def _load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets. A plain array over the map: np.memmap's own class slows every indexing."""
    ids, offsets = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("ids", "offsets"))
    return np.asarray(ids).view(np.ndarray), np.asarray(offsets).view(np.ndarray)


def _gather(ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> Padded:
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return pad_flat(ids[places], lengths)
