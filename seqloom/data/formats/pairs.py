"""Reading examples from the user's files: TSV, CSV, JSON lines or two parallel texts, each possibly as .gz.

Files are streamed and may be of any size; lines are those of `data/files/lines.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data.files.columns import ReadOptions, delimiter_of, missing_delimiter, select_columns
from seqloom.data.files.columns import delimiter_name as named
from seqloom.data.files.encodings import as_utf8
from seqloom.data.files.file_format import detect_format, encoding_of
from seqloom.data.files.file_groups import (
    FOLDER,
    Group,
    first_column_only,
    group_files,
    group_of_file,
    labelled_files,
    records,
    with_columns,
)
from seqloom.data.files.header import LINES_COMPARED
from seqloom.data.files.lines import STDIN, Line, LineError, decode, local_path, number_lines, read_lines
from seqloom.data.formats.json_lines import empty, parse_json
from seqloom.errors import SeqloomError

__all__ = [
    "Example",
    "Group",
    "Problem",
    "group_files",
    "parse_lines",
    "read",
    "read_entries",
    "read_sources",
    "read_with_targets",
]
__all__ += ["source_entries", "too_long"]

MAX_LENGTH = 5_000  # characters a side
_LARGEST = 1e30  # number: squares of larger ones overflow


class Example(NamedTuple):
    source: str
    targets: tuple[str, ...]  # the first is the target; the others are further references
    file: str
    line: int  # counted from 1


class Problem(NamedTuple):
    """A broken or suspicious line."""

    file: str
    line: int
    reason: str
    kind: str = "error"  # or "warning"
    code: str = ""  # a stable word for the reason

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


LineObserver = Callable[[str, Iterator[Line]], Iterator[Line]]  # passes the lines of a file through
OnNote = Callable[[str], object]  # receives notes on a file


def read(group: Group, need_target: bool = True) -> Iterator[Example]:
    """The examples of a group. The first broken line raises `file:line: reason`."""
    for entry in read_entries(group, need_target):
        if isinstance(entry, Problem):
            raise SeqloomError(str(entry))
        yield entry


def read_entries(
    group: Group, need_target: bool = True, observe: LineObserver | None = None
) -> Iterator[Example | Problem]:
    """As `read`, but a broken line gives a `Problem` and reading continues."""
    if group.form == FOLDER:
        return _folder(group, observe)
    lines = group.lines()
    if observe is not None:
        lines = [observe(file, each) for file, each in zip(group.files, lines, strict=True)]
    return parse_lines(group, lines, need_target)


def parse_lines(group: Group, lines: Sequence[Iterator[Line]], need_target: bool = True) -> Iterator[Example | Problem]:
    """The examples of `lines`, one stream per file of the group, from any line on."""
    if group.form == "parallel":
        yield from _parallel(group, *lines)
        return
    parse = _from_json if group.form == "jsonl" else _from_fields
    for line, record in records(group, lines[0]):
        if line == 1 and group.header:
            continue
        try:
            if isinstance(record, LineError):
                raise record
            source, targets = parse(record, group, need_target)
            yield Example(source, _check_targets(targets, group.target_kind), group.files[0], line)
        except LineError as broken:
            yield Problem(group.files[0], line, str(broken), code=broken.code)


def read_sources(file: str | Path, reading: ReadOptions | None = None, on_note: OnNote | None = None) -> Iterator[str]:
    """One source per line, for prediction; of a TSV or CSV the first column, of JSON lines the source.

    Of the columns of `reading` only the first is read. Empty lines give empty texts, so that predictions match lines.
    Standard input ("-") is streamed; it is JSON lines if its first line begins with "{". `on_note` receives notes on
    the file.
    """
    return (asked.source for asked in read_with_targets(file, first_column_only(reading), "text", on_note))


def read_with_targets(
    file: str | Path, reading: ReadOptions | None = None, plain: str = "tsv", on_note: OnNote | None = None
) -> Iterator[Example]:
    """As `read_sources`, but examples, with the other columns as targets, if any.

    `plain`: the format of a file of which name and first line do not tell it.
    """
    name, reading = str(file), reading or ReadOptions()
    if name == STDIN:
        one, lines = stdin(reading)
    else:
        path = local_path(name)
        one = group_of_file(name, path, detect_format(name, path, reading))
        one = replace(one, form=plain) if one.form == "parallel" else one
        [lines] = one.lines()
    for entry in _optional_targets(one, lines, reading, 0 if name == STDIN else LINES_COMPARED, on_note):
        if isinstance(entry, Problem):
            raise SeqloomError(str(entry))
        yield entry


def stdin(reading: ReadOptions) -> tuple[Group, Iterator[Line]]:
    """Standard input as a stream: detection sees only what is available already."""
    raw: Any = sys.stdin.buffer
    start = raw.peek() if hasattr(raw, "peek") else b""
    encoding, notes = encoding_of("stdin", start, reading)
    stream = number_lines("stdin", as_utf8(raw, encoding))
    first = list(islice(stream, 1))
    json_lines = any(isinstance(line, bytes) and line.startswith(b"{") for _, line in first)
    sign = "\t" if reading.delimiter is None else delimiter_of(reading.delimiter)
    form = "jsonl" if json_lines else "tsv" if sign == "\t" else "csv"
    return Group(form, ("stdin",), (), notes=notes, separator=sign), chain(first, stream)


def pass_notes(notes: Iterable[str], on_note: OnNote | None) -> None:
    """Calls `on_note` with each note."""
    if on_note is not None:
        for note in notes:
            on_note(note)


def source_entries(group: Group, reading: ReadOptions | None = None) -> Iterator[Example | Problem]:
    """Examples without targets, empty ones too; a broken line gives a `Problem` and reading continues."""
    found = _optional_targets(group, group.lines()[0], first_column_only(reading))
    return (one if isinstance(one, Problem) else one._replace(targets=()) for one in found)


def _optional_targets(
    group: Group,
    lines: Iterator[Line],
    reading: ReadOptions,
    ahead: int = LINES_COMPARED,
    on_note: OnNote | None = None,
) -> Iterator[Example | Problem]:
    group, found = with_columns(group, reading, records(group, lines), ahead)
    pass_notes(group.notes, on_note)
    for line, record in found:
        try:
            if isinstance(record, LineError):
                raise record
            yield Example(*_fields(record, group), group.files[0], line)
        except LineError as broken:
            yield Problem(group.files[0], line, str(broken), code=broken.code)


def too_long(example: Example, longest: int | None) -> Problem | None:
    """The problem of an example with a side of more than `longest` characters."""
    for side, texts in (("source", (example.source,)), ("target", example.targets)):
        most = max(map(len, texts))
        if longest is not None and most > longest:
            reason = f"the {side} has {most:,} characters; more than {longest:,}"
            return Problem(example.file, example.line, reason, code="long")
    return None


def _fields(record: list[str], group: Group) -> tuple[str, tuple[str, ...]]:
    """Source and targets; both may be missing."""
    if record == [""] or group.form == "text":
        return record[0], ()
    if group.form == "jsonl":
        return parse_json(record[0], group.keys) if record[0].strip() else ("", ())
    return select_columns(record, group.columns)


def _from_fields(record: list[str], group: Group, need_target: bool) -> tuple[str, tuple[str, ...]]:
    if record == [""]:
        raise LineError(f"empty line; expected source {named(group.separator)} target", "empty")
    alone = len(record) == 1 and need_target
    if alone and group.columns is not None:
        raise missing_delimiter(record[0], group.separator)
    source, targets = select_columns(record, group.columns)
    _require(source, targets if need_target else (), missing_delimiter(source, group.separator) if alone else None)
    return source, targets if need_target else tuple(target for target in targets if not empty(target))


def _from_json(record: list[str], group: Group, need_target: bool) -> tuple[str, tuple[str, ...]]:
    source, targets = parse_json(record[0], group.keys, group.target_kind != "text")
    missing = LineError(f'key "{group.keys[1]}" is missing', "columns") if need_target else None
    _require(source, targets if need_target else (), missing)
    return source, targets if need_target else tuple(target for target in targets if not empty(target))


def _require(source: str, targets: Sequence[str], missing: LineError | None) -> None:
    """`missing`: the error if there is no target; None if none is needed."""
    if empty(source):
        raise LineError("the source is empty", "empty")
    if missing is not None and not targets:
        raise missing
    if any(map(empty, targets)):
        raise LineError("the target is empty", "empty")


def _check_targets(targets: tuple[str, ...], values: str) -> tuple[str, ...]:
    """Targets checked by `ReadOptions.target_kind`; several labels become one text."""
    kind, _, sign = values.partition(":")
    if kind == "labels" and targets:
        return (sign.join(targets),)
    if kind != "text" and len(targets) > 1:
        raise LineError(f"{len(targets)} targets where one {kind} is expected; --columns chooses", "columns")
    for target in targets if kind == "number" else ():
        if not is_number(target):
            raise LineError(f"the target {target.strip()[:40]!r} is no number", "number")
    return targets


def is_number(text: str) -> bool:
    """A finite number in ASCII, in Python's syntax."""
    try:
        return text.isascii() and "_" not in text and abs(float(text)) < _LARGEST
    except ValueError:
        return False


def _folder(group: Group, observe: LineObserver | None) -> Iterator[Example | Problem]:
    """One example per file, its lines joined by blanks. `line` is the number of the file, of a broken line its own."""
    for number, (label, path) in enumerate(labelled_files(group.paths[0]), 1):
        lines = read_lines(str(path), path, group.encodings[0])
        try:
            texts = [_decode_at(line, raw) for line, raw in (lines if observe is None else observe(str(path), lines))]
            source = " ".join(texts).strip()
            _require(source, (), None)
            yield Example(source, _check_targets((label,), group.target_kind), group.files[0], number)
        except LineError as broken:
            yield Problem(str(path), broken.line, str(broken), code=broken.code)


def _decode_at(line: int, raw: bytes | LineError) -> str:
    """`decode` with the line number in errors."""
    try:
        if isinstance(raw, LineError):
            raise raw
        return decode(raw)
    except LineError as broken:
        broken.line = line
        raise


def _parallel(group: Group, left: Iterator[Line], right: Iterator[Line]) -> Iterator[Example | Problem]:
    for line, pair in _zip_lines(left, right):
        if None in pair:
            short = pair.index(None)
            reason = f"is missing, but {group.files[1 - short]} goes on; parallel files need equally many lines"
            yield Problem(group.files[short], line, f"the line {reason}", code="pairs")
            return
        texts: list[str] = []
        for file, raw, side in zip(group.files, pair, ("source", "target"), strict=True):
            try:
                if isinstance(raw, LineError):
                    raise raw
                text = decode(raw or b"")
                if empty(text):
                    raise LineError(f"the {side} is empty", "empty")
                texts.append(text)
            except LineError as broken:
                yield Problem(file, line, str(broken), code=broken.code)
        if len(texts) == 2:
            yield Example(texts[0], (texts[1],), group.files[0], line)


def _zip_lines(left: Iterator[Line], right: Iterator[Line]) -> Iterator[tuple[int, tuple[Any, Any]]]:
    """Pairs of lines with the same number; None where one side has ended."""
    while True:
        one, other = next(left, None), next(right, None)
        there = one or other
        if there is None:
            return
        yield there[0], (one and one[1], other and other[1])
        if one is None or other is None:
            return
