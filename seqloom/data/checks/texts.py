"""`data check` for running text: broken and suspicious lines, and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.data.checks import problems
from seqloom.data.checks.suspicious_text import SuspiciousText
from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.lines import LineError, decode
from seqloom.data.formats.pairs import MAX_LENGTH, Problem
from seqloom.data.formats.plain_text import encoding_only, raw_chunks, split_lines, text_file_group
from seqloom.plural import counted


def check(files: list[str], *, max_length: int | None = None, reading: ReadOptions | None = None) -> Report:
    """Check plain texts. Iterate over the report for the problems, as they are found.

    Errors are lines that training would refuse: bad UTF-8, NUL, a byte order mark in the middle. Warnings are
    suspicious ones (see `suspicious_text`), and lines over `max_length` characters.
    """
    return Report(files, MAX_LENGTH if max_length is None else max_length, reading)


@dataclass(frozen=True)
class Statistics:
    """Statistics of one text."""

    file: str
    numbers: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"files": [self.file], "form": "text", **self.numbers, "told": [self.summary()]}

    def summary(self) -> str:
        """In a sentence."""
        n = self.numbers
        return (
            f"{self.file}: {counted(n['characters'], 'characters')}, {counted(n['words'], 'words')} in "
            f"{counted(n['lines'], 'lines')}, the longest of {n['longest']:,}; "
            f"{counted(n['distinct_characters'], 'distinct characters')}"
        )


class Report(problems.Report):
    """Of running text."""

    def __init__(self, files: list[str], max_length: int = MAX_LENGTH, reading: ReadOptions | None = None):
        self.files, self.max_length = files, max_length
        self.forms = [text_file_group(file, encoding_only(reading or ReadOptions())) for file in files]

    @property
    def notes(self) -> list[str]:
        return [note for one in self.forms for note in one.notes]

    def _problems(self) -> Iterator[Problem]:
        for one in self.forms:
            yield from self._text(one.files[0], one.paths[0], one.encodings[0])

    def _text(self, file: str, path: Path, encoding: str) -> Iterator[Problem]:
        marks, facts, alphabet = SuspiciousText("text"), Counter[str](), set[str]()
        last = length = reported = 0  # a very long line comes in several chunks
        for raw in raw_chunks(file, path, encoding):
            for line, content in marks.observe(file, enumerate(split_lines(raw.content), raw.line)):
                yield from marks.problems
                marks.problems.clear()
                try:
                    text = decode(content)  # pyright: ignore[reportArgumentType]
                except LineError as broken:
                    facts["broken"] += 1
                    yield Problem(file, line, str(broken), code=broken.code)
                    continue
                length, new, last = len(text) + (length if line == last else 0), line != last, line
                if length > self.max_length and line != reported:
                    reason, reported = f"the line has {length:,} characters; more than {self.max_length:,}", line
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
