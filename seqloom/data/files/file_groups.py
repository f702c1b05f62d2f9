"""Grouping the user's files, with their formats and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seqloom.data.files.binary_files import binary_majority
from seqloom.data.files.columns import (
    SEPARATORS,
    Columns,
    ReadOptions,
    Record,
    header_columns,
    is_known_header,
    line_records,
)
from seqloom.data.files.csv import csv_records
from seqloom.data.files.delimiter import single_file_hint
from seqloom.data.files.encodings import UTF8
from seqloom.data.files.file_format import FileFormat, detect_format, encoding_of
from seqloom.data.files.header import LINES_COMPARED, is_header
from seqloom.data.files.header import is_column_name as known_word
from seqloom.data.files.lines import STDIN, Line, LineError, local_path, read_head, read_lines
from seqloom.errors import SeqloomError

FOLDER = "folder"
_SEVERAL = 20  # files of a folder, to detect its encoding


@dataclass(frozen=True)
class Group:
    """Files that are read together: one, two parallel ones, or a folder with a subfolder per label."""

    form: str  # "tsv", "csv", "jsonl", "parallel" or "folder"
    files: tuple[str, ...]  # as named by the user
    paths: tuple[Path, ...]  # where they are; standard input has been copied to a file
    columns: Columns | None = None  # counted from 0: source and targets; None: all, the first is the source
    keys: tuple[str, ...] = ("source", "target")  # of JSON lines
    header: bool = False  # the first line names the columns
    notes: tuple[str, ...] = ()  # what was decided about the files, in sentences
    target_kind: str = "text"  # see `ReadOptions.target_kind`
    encodings: tuple[str, ...] = ()  # of the files; none named: UTF-8
    separator: str = ""  # between columns
    titles: tuple[tuple[str, ...], ...] = ()  # known header lines, of this file or others
    non_default: tuple[str, ...] = ()  # see `FileFormat.non_default`

    def lines(self) -> list[Iterator[Line]]:
        """The lines of each file."""
        encodings = self.encodings or (UTF8,) * len(self.files)
        return [read_lines(*one) for one in zip(self.files, self.paths, encodings, strict=True)]

    def __str__(self) -> str:
        return " + ".join(self.files)


def group_files(
    files: Iterable[str | Path], reading: ReadOptions | None = None, min_columns: int = 2, like: Iterable[Group] = ()
) -> list[Group]:
    """Group files and resolve their columns, at least `min_columns`.

    .jsonl is JSON lines, .csv comma separated; .tsv or a first line with a TAB is TSV; others come in pairs.
    `like`: groups read before; their header lines are headers here too.
    """
    reading = reading or ReadOptions()
    titles = tuple(title for one in like for title in one.titles)
    if reading.column_names is not None and len(reading.column_names) < min_columns:
        raise SeqloomError(f"--columns {reading.columns!r}: name at least two: the source, then its targets")
    groups: list[Group] = []
    waiting: Group | None = None
    for name in map(str, files):
        path = local_path(name)
        one = replace(_file_or_folder("stdin" if name == STDIN else name, path, reading), titles=titles)
        if one.form != "parallel" and waiting is not None:
            break
        if one.form != "parallel":
            groups.append(_resolve(one, reading))
            titles = groups[-1].titles
        elif waiting is None:
            waiting = one
        else:
            groups.append(_resolve(_join_parallel(waiting, one), reading))
            waiting = None
    if waiting is not None:
        raise SeqloomError(
            f"{waiting}: {single_file_hint(read_head(waiting.files[0], waiting.paths[0]), reading.target_kind)}"
        )
    return groups


def _file_or_folder(name: str, path: Path, reading: ReadOptions) -> Group:
    """A single file, or a folder of labelled texts."""
    if path.is_dir() and reading.target_kind != "text":
        return _folder(name, path, reading)
    return group_of_file(name, path, detect_format(STDIN if name == "stdin" else name, path, reading))


def group_of_file(name: str, path: Path, form: FileFormat) -> Group:
    """The group of one file of a detected format."""
    return Group(
        form.kind,
        (name,),
        (path,),
        notes=form.notes,
        encodings=(form.encoding,),
        separator=form.separator,
        non_default=tuple(form.non_default),
    )


def text_group(name: str, reading: ReadOptions) -> Group:
    """The group of one file without targets."""
    path = local_path(name)
    one = group_of_file("stdin" if name == STDIN else name, path, detect_format(name, path, reading))
    return replace(one, form="text") if one.form == "parallel" else one


def resolve_columns(group: Group, reading: ReadOptions) -> Group:
    """The group with its columns resolved."""
    return with_columns(group, reading, records(group, group.lines()[0]))[0]


def _join_parallel(one: Group, other: Group) -> Group:
    """Two parallel files."""
    return replace(
        one,
        files=(*one.files, *other.files),
        paths=(*one.paths, *other.paths),
        notes=(*one.notes, *other.notes),
        encodings=(*one.encodings, *other.encodings),
        non_default=(*one.non_default, *other.non_default),
    )


def _folder(name: str, path: Path, reading: ReadOptions) -> Group:
    """A folder with a subfolder per label, all in one encoding."""
    files = [file for _, file in labelled_files(path)]
    if other := binary_majority(files):
        raise SeqloomError(f"{name}: that is {other}")
    start = b"\n".join(read_head(str(file), file)[: 1 << 12] for file in files[:: max(1, len(files) // _SEVERAL)])
    encoding, notes = encoding_of(name, start, reading)
    non_default = () if encoding == UTF8 else (encoding,)
    return Group(FOLDER, (name,), (path,), notes=notes, encodings=(encoding,), non_default=non_default)


def first_column_only(reading: ReadOptions | None) -> ReadOptions:
    """For prediction: only the first column."""
    reading = reading or ReadOptions()
    names = None if reading.column_names is None else reading.column_names[0]
    return ReadOptions(columns=names, **reading.file_options)


def with_columns(
    group: Group, reading: ReadOptions, found: Iterator[Record], ahead: int = LINES_COMPARED
) -> tuple[Group, Iterator[Record]]:
    """The group with its columns resolved, and its records without the header. `ahead`: lines after the first that
    may be read to detect a header."""
    names, numbers, file = reading.column_names, reading.column_numbers, group.files[0]
    if names is not None and group.form in ("parallel", "text", FOLDER):
        raise SeqloomError(f"{group}: --columns {reading.columns!r} goes with TSV, CSV and JSON lines, not plain text")
    if group.form == "jsonl":
        if numbers is not None:
            raise SeqloomError(f"{file}: --columns {reading.columns!r}: JSON lines have names, not numbers")
        usual = group.keys if group.target_kind == "text" else ("text", "label")
        return replace(group, keys=names or usual), found
    first = next(found, None)
    fields = first[1] if first is not None and isinstance(first[1], list) else []
    if names is not None and numbers is None:
        if first is not None and isinstance(first[1], LineError):
            raise SeqloomError(f"{file}:1: {first[1]}")
        return replace(group, columns=header_columns(names, fields, file), header=True), found
    group = replace(group, columns=numbers)
    if first is None or group.form not in SEPARATORS:
        return group, found if first is None else chain([first], found)
    after = list(islice(found, ahead if reading.detect and reading.header is None else 0))
    found = chain(after, found)
    old = numbers is None and group.form == "csv" and is_known_header(fields)  # as in earlier versions
    if _has_header(fields, after, group, reading, ahead, old):
        names, asked = ",".join(fields), "" if reading.header is None else " as requested"
        names = names if len(names) <= 100 else f"{names[:99]}…"
        note = f"{file}: the first line ({names}) is taken as a header{asked}; --no-header reads it as data"
        non_default = () if old else ("header",)
        group = replace(group, header=True, titles=(*group.titles, tuple(fields)))
        return replace(group, **_noted(group, [note, *_columns_note(group, fields)], non_default)), found
    notes = [] if reading.header is False else _columns_note(group, fields, "the first line is data: ")
    return replace(group, **_noted(group, notes, ("no header",) if old else ())), chain([first], found)


def _has_header(
    fields: list[str], after: list[Record], group: Group, reading: ReadOptions, ahead: int, old: bool
) -> bool:
    """Whether the first line is a header: as set, as in earlier versions, or by its content."""
    if reading.header is not None:
        return reading.header
    if not reading.detect or not fields:
        return old
    if tuple(fields) in group.titles:
        return True
    rest = [record for _, record in after if isinstance(record, list)]
    if len(fields) == 1:  # texts alone, for prediction
        return group.files[0].removesuffix(".gz").endswith((".csv", ".tsv")) and known_word(fields[0]) and bool(rest)
    if not ahead:  # nothing can be compared
        return all(map(known_word, fields)) and is_header(fields, ())
    return is_header(fields, rest, group.columns)


def _columns_note(group: Group, fields: list[str], what: str = "") -> list[str]:
    """A note on a .csv with more than two columns, none of them chosen."""
    if group.columns is not None or len(fields) <= 2 or group.form != "csv":
        return []
    note = f"{group.files[0]}: {len(fields)} columns, and {what}the first column is the source, the others are targets"
    return [f"{note}; --columns chooses by number or by name"]


def _noted(group: Group, notes: list[str], non_default: tuple[str, ...]) -> dict[str, Any]:
    return {"notes": (*group.notes, *notes), "non_default": (*group.non_default, *non_default)}


def _resolve(group: Group, reading: ReadOptions) -> Group:
    """The group with its columns resolved, and notes on its files."""
    group = replace(group, target_kind=reading.target_kind)
    if group.form == FOLDER:
        labels = sorted({label for label, _ in labelled_files(group.paths[0])})
        note = f"{group}: a folder: every file is a text, with the name of its folder as label: {', '.join(labels)}"
        group, _ = with_columns(group, reading, iter(()))
        return replace(group, notes=(*group.notes, note))
    return resolve_columns(group, reading)


def labelled_files(folder: Path) -> list[tuple[str, Path]]:
    """Label and file of every text in a folder with a subfolder per label, sorted. Hidden ones are skipped."""
    found = [
        (one.name, file)
        for one in sorted(folder.iterdir())
        if one.is_dir() and not one.name.startswith(".")
        for file in sorted(one.iterdir())
        if file.is_file() and not file.name.startswith(".")
    ]
    if not found:
        if other := binary_majority(sorted(one for one in folder.iterdir() if one.is_file())):
            raise SeqloomError(f"{folder}: that is {other}")
        raise SeqloomError(
            f"{folder}: holds no texts: expected a folder for each label, and in it a file for each text"
        )
    return found


def records(group: Group, lines: Iterator[Line]) -> Iterator[Record]:
    """Lines split into fields. JSON, like plain text, is one field."""
    if group.form == "csv":
        return csv_records(lines, group.separator or ",")
    return line_records(lines, "\t" if group.form == "tsv" else None)
