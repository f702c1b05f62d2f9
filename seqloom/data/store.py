"""Numbered examples on disk: one flat array of ids for each side, and where each row ends. Memory-mapped, never loaded.

Ten million pairs take about a gigabyte of disk and next to no memory, and start in no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType

import numpy as np

from seqloom.data.batch import Batch, Padded, pad_flat
from seqloom.data.numbers import Rows, runs
from seqloom.data.order import Plan, plan
from seqloom.data.tokens import BOS, EOS

_CHUNK = 1 << 18  # numbers that are given their final value at a time


class Corpus:
    """Rows of ids: sources end in <eos>, targets stand between <bos> and <eos>."""

    def __init__(self, folder: Path, name: str, fingerprint: str):
        self.fingerprint = fingerprint  # of the data and of how it was numbered, not of where it lies
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
        """Batches of examples of like length: see `order.plan`."""
        lengths = (self.source_lengths, self.target_lengths)
        return plan(*lengths, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)

    def count(self, rows: np.ndarray) -> int:
        """Target tokens to be guessed, <eos> among them."""
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


class Writer:
    """Writes a `Corpus`, many rows at a time.

    Tokens get their final numbers when all have been seen: until then ids wait in a file of their own.
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
        """After closing: give every id its final number by a table. Returns how often each comes, specials included."""
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


def _gather(ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> Padded:
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    return pad_flat(ids[runs(starts, lengths)], lengths)
