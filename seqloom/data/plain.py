"""Running text: plain files of any size, read piece by piece.

A piece ends where words and characters are whole: at a line end, or before a blank where a line is endless.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data import looking
from seqloom.data.amounts import counted
from seqloom.data.columns import Reading
from seqloom.data.encodings import UTF8
from seqloom.data.forms import look
from seqloom.data.groups import Group, alone, first_only, settled
from seqloom.data.lines import BLOCK, BOM, LineError, decode, open_bytes, place
from seqloom.data.marks import Marks
from seqloom.data.read import MAX_LENGTH, Problem, read_sources
from seqloom.data.skip import Skipped
from seqloom.errors import SeqloomError

_BLANK = re.compile(rb"[ \t](?=[^ \t]*$)")
TABLES = (".tsv", ".csv", ".jsonl")


class Raw(NamedTuple):
    """Bytes of a file, from its line `line` on; the first of them may be the rest of that line."""

    line: int
    content: bytes


def raw_pieces(file: str, path: Path, encoding: str = UTF8, size: int = BLOCK) -> Iterator[Raw]:
    """The bytes of a file, `size` or more at a time. A byte order mark at its start is dropped."""
    line, rest = 1, b""
    with open_bytes(file, path, encoding) as stream:
        try:
            first = True
            while chunk := stream.read(size):
                chunk, first = rest + (chunk.removeprefix(BOM) if first else chunk), False
                end = _cut(chunk)
                if end:
                    yield Raw(line, chunk[:end])
                    line += chunk.count(b"\n", 0, end)
                rest = chunk[end:]
            if rest:
                yield Raw(line, rest)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise SeqloomError(f"{file}:{line}: the .gz file is cut off or damaged here ({error})") from error
        except OSError as error:
            raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def _cut(chunk: bytes) -> int:
    """Where a piece may end: after the last line end, or before the last blank. 0: not yet, at least one more chunk."""
    if end := chunk.rfind(b"\n") + 1:
        return end
    if blank := _BLANK.search(chunk):
        return blank.start()
    if len(chunk) < 4 * BLOCK:
        return 0
    start = len(chunk) - 1  # Chinese, say, without a blank: before the last character that begins
    while start and chunk[start] & 0xC0 == 0x80:
        start -= 1
    return start


def pieces(file: str, reading: Reading, skipped: Skipped | None = None) -> Iterator[str]:
    """The text of a file; lines end in "\\n". Broken lines go to `skipped`; if that is None the first one raises.

    Of a table (.tsv, .csv, .jsonl) with `columns`, the first of them, a line each.
    """
    name = "stdin" if file == "-" else file
    if _is_table(file, reading):
        yield from (f"{text}\n" for text in read_sources(file, reading))
        return
    path = place(file)
    for raw in raw_pieces(name, path, look(file, path, _plainly(reading)).encoding):
        if text := "".join(_whole(name, raw, skipped)):
            yield text


def _is_table(file: str, reading: Reading) -> bool:
    return reading.columns is not None and file.removesuffix(".gz").endswith(TABLES)


def _plainly(reading: Reading) -> Reading:
    """Of plain text only the encoding matters."""
    return Reading(encoding=reading.encoding, recognise=reading.recognise)


def formed_text(file: str, reading: Reading) -> Group:
    """A file as `pieces` reads it, and what there is to say about it."""
    if _is_table(file, reading):
        return settled(alone(file, reading), first_only(reading))
    one = alone(file, _plainly(reading))
    unusual = tuple(code for code in one.encodings if code != UTF8)
    return replace(one, notes=one.notes[:1] if unusual else (), unusual=unusual)


def _whole(name: str, raw: Raw, skipped: Skipped | None) -> Iterator[str]:
    """Text of bytes: all at once where nothing is odd, else line by line."""
    if b"\r" not in raw.content and b"\0" not in raw.content and BOM not in raw.content:
        try:
            yield raw.content.decode()
            return
        except UnicodeDecodeError:
            pass
    for number, line in enumerate(_lines(raw.content), raw.line):
        try:
            yield decode(line) + ("\n" if line.endswith(b"\n") else "")
        except LineError as broken:
            problem = Problem(name, number, str(broken), code=broken.code)
            if skipped is None:
                raise SeqloomError(f"{problem}; --skip-bad leaves such lines out") from broken
            skipped.add(problem)


def _lines(content: bytes) -> list[bytes]:
    """Lines end at "\\n" only."""
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def check(files: list[str], *, max_length: int | None = None, reading: Reading | None = None) -> Report:
    """Look through plain texts. Iterate over the report for the problems, as they are found.

    Errors are lines that training would refuse: bad UTF-8, NUL, a byte order mark in the middle. Warnings are odd ones
    (see `marks`), and lines over `max_length` characters.
    """
    return Report(files, MAX_LENGTH if max_length is None else max_length, reading)


@dataclass(frozen=True)
class Statistics:
    """The numbers of one text."""

    file: str
    numbers: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"files": [self.file], "form": "text", **self.numbers, "told": [self.told()]}

    def told(self) -> str:
        """In a sentence."""
        n = self.numbers
        return (
            f"{self.file}: {counted(n['characters'], 'characters')}, {counted(n['words'], 'words')} in "
            f"{counted(n['lines'], 'lines')}, the longest of {n['longest']:,}; "
            f"{counted(n['distinct_characters'], 'distinct characters')}"
        )


class Report(looking.Report):
    """Of running text."""

    def __init__(self, files: list[str], max_length: int = MAX_LENGTH, reading: Reading | None = None):
        self.files, self.max_length = files, max_length
        self.forms = [formed_text(file, _plainly(reading or Reading())) for file in files]

    @property
    def notes(self) -> list[str]:
        return [note for one in self.forms for note in one.notes]

    def _problems(self) -> Iterator[Problem]:
        for one in self.forms:
            yield from self._text(one.files[0], one.paths[0], one.encodings[0])

    def _text(self, file: str, path: Path, encoding: str) -> Iterator[Problem]:
        marks, facts, alphabet = Marks("text"), Counter[str](), set[str]()
        last = length = told = 0  # of an endless line a piece comes at a time
        for raw in raw_pieces(file, path, encoding):
            for line, content in marks.through(file, enumerate(_lines(raw.content), raw.line)):
                yield from marks.found
                marks.found.clear()
                try:
                    text = decode(content)  # pyright: ignore[reportArgumentType]
                except LineError as broken:
                    facts["broken"] += 1
                    yield Problem(file, line, str(broken), code=broken.code)
                    continue
                length, new, last = len(text) + (length if line == last else 0), line != last, line
                if length > self.max_length and line != told:
                    reason, told = f"the line has {length:,} characters; more than {self.max_length:,}", line
                    yield Problem(file, line, reason, "warning", "long")
                facts["lines"] += new
                facts["characters"] += len(text) + new
                facts["words"] += len(text.split())
                facts["longest"] = max(facts["longest"], length)
                alphabet.update(text)
        if not marks.lines:
            yield Problem(file, 1, "the file is empty", code="empty")
        yield from marks.line_ends()
        numbers = {name: facts[name] for name in ("lines", "broken", "characters", "words", "longest")}
        self._statistics.append(Statistics(file, {**numbers, "distinct_characters": len(alphabet)}))
