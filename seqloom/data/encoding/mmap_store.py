"""Encoded examples on disk: one flat array of ids for each side, and where each row ends. Memory-mapped, never loaded.

Ten million pairs take about a gigabyte of disk and next to no memory, and start in no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from seqloom.data.encoding.encode import Rows
from seqloom.data.tokenizers.tokenizers import BOS, EOS

_CHUNK = 1 << 18  # ids that get their final value at a time


class Writer:
    """Writes a `PairSource`, many rows at a time.

    Tokens get their final ids when all have been seen: until then ids wait in a file of their own.
    """

    def __init__(self, folder: Path, name: str):
        self.rows = 0
        self._source = RowsFile(folder, f"{name}_source")
        self._target = RowsFile(folder, f"{name}_target")

    def extend(self, source: Rows, target: Rows) -> None:
        """Rows of ids, which may be preliminary, specials not counted among them yet."""
        self._source.extend(source.between((), (EOS,)))
        self._target.extend(target.between((BOS,), (EOS,)))
        self.rows += len(source.lengths)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        try:
            self._source.close()
        finally:
            self._target.close()

    def settle(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """After closing: give every id its final value by a table. Returns how often each comes, specials included."""
        return self._source.settle(source), self._target.settle(target)


class RowsFile:
    def __init__(self, folder: Path, name: str):
        self._path = folder / f"{name}_ids.npy"
        self._ids = _Growing(folder / f"{name}_waiting.npy", np.dtype(np.int32))
        self._offsets = _Growing(folder / f"{name}_offsets.npy", np.dtype(np.int64))
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

    def settle(self, table: np.ndarray) -> np.ndarray:
        size = int(table.max(initial=0)) + 1
        counts = np.zeros(size, np.int64)
        final = _Growing(self._path, np.dtype(np.uint16 if size <= 1 << 16 else np.int32))
        try:
            for chunk in self._ids.chunks():
                ids = table[chunk]
                counts += np.bincount(ids, minlength=size)
                final.extend(ids)
        finally:
            final.close()
        self._ids.path.unlink()
        return counts


class _Growing:
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
            if self._data != start:  # numpy leaves room in the header for the length to grow
                raise ValueError("the header of the .npy file outgrew its place")

    def chunks(self) -> Iterator[np.ndarray]:
        """The numbers of a closed file, some at a time: mapped whole, they would count as memory in use."""
        with self.path.open("rb") as file:
            file.seek(self._data)
            while len(chunk := np.fromfile(file, self._dtype, _CHUNK)):
                yield chunk

    def _header(self) -> None:
        shape = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_2_0(self._file, shape)
        self._data = self._file.tell()


def load_rows(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets. A plain array over the map: np.memmap's own class slows every indexing."""
    ids, offsets = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("ids", "offsets"))
    return np.asarray(ids).view(np.ndarray), np.asarray(offsets).view(np.ndarray)
