"""Word vectors in text files: a word and its numbers on every line, as of GloVe and word2vec."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.data.files.lines import LineError, decode, local_path, read_lines
from seqloom.errors import SeqloomError
from seqloom.files import writing_output


@dataclass(frozen=True, eq=False)
class Vectors:
    """Words and their vectors."""

    name: str  # of the file or dataset
    words: dict[str, int]  # word to row
    table: np.ndarray  # [words, dim] float32

    @property
    def dim(self) -> int:
        return self.table.shape[1]


def read_vectors(file: str, wanted: Container[str] | None = None) -> Vectors:
    """From a text file, plain or .gz, in the format of GloVe (Pennington et al. 2014) or word2vec, whose first line has
    both sizes (Mikolov et al. 2013). `wanted`: other words are skipped."""
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    dim: int | None = None
    for line, raw in read_lines(file, local_path(file)):
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw).rstrip(" \t")
            if line == 1 and (dim := _header(text)):
                continue
            dim = dim or _width(text)
            word, numbers = _split_line(text, dim)
            if word not in words and (wanted is None or word in wanted):
                rows.append(_numbers(numbers, dim))
                words[word] = len(words)
        except LineError as broken:
            raise SeqloomError(f"{file}:{line}: {broken}") from None
    if dim is None:
        raise SeqloomError(f"{file}:1: the file is empty; expected a word and its numbers on every line")
    return Vectors(file, words, np.stack(rows) if rows else np.zeros((0, dim), np.float32))


def from_pairs(name: str, pairs: Iterable[tuple[str, np.ndarray]], wanted: Container[str] | None = None) -> Vectors:
    """From pairs of word and vector in memory."""
    chosen = {word: vector for word, vector in pairs if wanted is None or word in wanted}
    table = np.stack(list(chosen.values())).astype(np.float32) if chosen else np.zeros((0, 0), np.float32)
    return Vectors(name, {word: row for row, word in enumerate(chosen)}, table)


def write_vectors(path: Path, words: list[str], table: np.ndarray) -> None:
    """In the text format of word2vec: a line with both sizes, then a word and its numbers per line. Blanks in words
    become "_"."""
    with writing_output(path) as file:
        file.write(f"{len(words)} {table.shape[1]}\n".encode())
        for word, row in zip(words, table, strict=True):
            numbers = " ".join(f"{number:.6g}" for number in row.tolist())
            file.write(f"{'_'.join(word.split()) or '_'} {numbers}\n".encode())


def _header(text: str) -> int | None:
    """The dimension, if this is the first line in the format of word2vec."""
    fields = text.split()
    return int(fields[1]) if len(fields) == 2 and all(field.isdecimal() for field in fields) else None


def _width(text: str) -> int:
    width = len(text.split()) - 1
    if width < 1:
        raise LineError("expected a word and its numbers, blanks between", "columns")
    return width


def _split_line(text: str, dim: int) -> tuple[str, list[str]]:
    """A word, which may contain blanks, and its numbers."""
    fields = text.rsplit(None, dim)
    if len(fields) != dim + 1:
        found = max(len(fields) - 1, 0)
        raise LineError(f"expected a word and {dim} numbers, found {found}", "columns")
    return fields[0], fields[1:]


def _numbers(fields: list[str], dim: int) -> np.ndarray:
    try:
        numbers = np.array(fields, np.float32)
    except ValueError:
        odd = next(field for field in fields if not _is_number(field))
        raise LineError(f"expected a word and {dim} numbers; {odd!r} is no number", "number") from None
    if not np.isfinite(numbers).all():
        raise LineError("holds a number that is not finite", "number")
    return numbers


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
