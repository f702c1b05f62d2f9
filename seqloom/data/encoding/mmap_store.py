"""Encoded examples on disk, memory-mapped: one flat array of ids for each side, and the offsets of its rows.

Ten million pairs take about a gigabyte of disk and almost no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from seqloom.data.encoding.encode import Rows
from seqloom.data.tokenizers.tokenizers import BOS, EOS

_CHUNK = 1 << 18  # ids mapped at a time


class PairWriter:
    """Writes a `PairSource`, many rows at a time.

    Final ids are known only when all tokens were counted; until then ids are preliminary, in a file of their own.
    """

    def __init__(self, folder: Path, name: str):
        self.rows = 0
        self._source = RowsFile(folder, f"{name}_source")
        self._target = RowsFile(folder, f"{name}_target")

    def extend(self, source: Rows, target: Rows) -> None:
        """Append rows of ids (preliminary or final), without specials."""
        self._source.extend(source.with_specials((), (EOS,)))
        self._target.extend(target.with_specials((BOS,), (EOS,)))
        self.rows += len(source.lengths)

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        try:
            self._source.close()
        finally:
            self._target.close()

    def finalize(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """After closing: map every id to its final one by a table. Returns the counts of the ids, specials included."""
        return self._source.finalize(source), self._target.finalize(target)


class RowsFile:
    def __init__(self, folder: Path, name: str):
        self._path = folder / f"{name}_ids.npy"
        self._ids = _NpyAppender(folder / f"{name}_waiting.npy", np.dtype(np.int32))
        self._offsets = _NpyAppender(folder / f"{name}_offsets.npy", np.dtype(np.int64))
        self._offsets.extend(np.zeros(1, np.int64))
        self._total = 0

    def extend(self, rows: Rows) -> None:
        self._ids.extend(rows.ids)
        self._offsets.extend(self._total + np.cumsum(rows.lengths))
        self._total += len(rows.ids)

    def close(self) -> None:
        try:
            self._ids.close()
        finally:
            self._offsets.close()

    def finalize(self, table: np.ndarray) -> np.ndarray:
        size = int(table.max(initial=0)) + 1
        counts = np.zeros(size, np.int64)
        final = _NpyAppender(self._path, np.dtype(np.uint16 if size <= 1 << 16 else np.int32))
        try:
            for chunk in self._ids.chunks():
                ids = table[chunk]
                counts += np.bincount(ids, minlength=size)
                final.extend(ids)
        finally:
            final.close()
        self._ids.path.unlink()
        return counts


class _NpyAppender:
    """A one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, path: Path, dtype: np.dtype):
        self.path, self._dtype, self._length = path, dtype, 0
        self._file = path.open("wb")
        self._header()

    def extend(self, numbers: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(numbers, self._dtype).data)
        self._length += len(numbers)

    def close(self) -> None:
        with self._file:
            start = self._data
            self._file.seek(0)
            self._header()
            if self._data != start:  # numpy pads the header so that the length can grow
                raise ValueError("the header of the .npy file outgrew its place")

    def chunks(self) -> Iterator[np.ndarray]:
        """The numbers of a closed file in chunks: a map of the whole would count as memory in use."""
        with self.path.open("rb") as file:
            file.seek(self._data)
            while len(chunk := np.fromfile(file, self._dtype, _CHUNK)):
                yield chunk

    def _header(self) -> None:
        shape = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_2_0(self._file, shape)
        self._data = self._file.tell()


def load_rows(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets, as plain arrays over the maps: np.memmap itself is slow to index."""
    ids, offsets = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("ids", "offsets"))
    return np.asarray(ids).view(np.ndarray), np.asarray(offsets).view(np.ndarray)
