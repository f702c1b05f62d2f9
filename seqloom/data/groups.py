"""Which of the user's files belong together, in which form they are, and in which columns the texts stand."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from seqloom.data.columns import Columns, Reading, Record, csv_records, header, line_records, looks_like_header
from seqloom.data.lines import BOM, STDIN, Line, LineError, form_of, open_bytes, place, read_lines
from seqloom.errors import SeqloomError

FOLDER = "folder"


@dataclass(frozen=True)
class Group:
    """Files that are read together: one, or two parallel ones, or a folder with a folder for each label."""

    form: str  # "tsv", "csv", "jsonl", "parallel" or "folder"
    files: tuple[str, ...]  # as the user calls them
    paths: tuple[Path, ...]  # where they are; standard input has been copied to a file
    columns: Columns | None = None  # counted from 0: source and targets; None: all, the first is the source
    keys: tuple[str, ...] = ("source", "target")  # of JSON lines
    header: bool = False  # the first line names the columns
    notes: tuple[str, ...] = ()  # what was decided about the files, in sentences
    values: str = "text"  # what the targets are, see `Reading.values`

    def __str__(self) -> str:
        return " + ".join(self.files)


def group(files: Iterable[str | Path], reading: Reading | None = None, least: int = 2) -> list[Group]:
    """Sort out file names and columns, of which at least `least` are needed.

    .jsonl is JSON lines, .csv comma separated; .tsv or a first line with a TAB is TSV; others come in pairs.
    """
    reading = reading or Reading()
    if reading.names is not None and len(reading.names) < least:
        raise SeqloomError(f"--columns {reading.columns!r}: name at least two: the source, then its targets")
    groups: list[Group] = []
    waiting: tuple[str, Path] | None = None
    for name in map(str, files):
        path = place(name)
        form = FOLDER if path.is_dir() and reading.values != "text" else form_of(name, path)
        name = "stdin" if name == STDIN else name
        if form == "parallel" and waiting is None:
            waiting = name, path
        elif form == "parallel" and waiting is not None:
            groups.append(_resolve(Group(form, (waiting[0], name), (waiting[1], path)), reading))
            waiting = None
        elif waiting is not None:
            break
        else:
            groups.append(_resolve(Group(form, (name,), (path,)), reading))
    if waiting is not None:
        raise SeqloomError(
            f"{waiting[0]}: no second file to pair it with. Expected: lines of source TAB target in one file, "
            f"JSON lines (.jsonl), or two parallel files one after the other, as in train.en train.de"
        )
    return groups


def first_only(reading: Reading | None) -> Reading:
    """For prediction only the first column counts."""
    return Reading(columns=None if reading is None or reading.names is None else reading.names[0])


def with_columns(group: Group, reading: Reading, found: Iterator[Record]) -> tuple[Group, Iterator[Record]]:
    """The group with its columns known, and its records without the line that names them."""
    names, numbers, file = reading.names, reading.numbers, group.files[0]
    if names is not None and group.form in ("parallel", "text", FOLDER):
        raise SeqloomError(f"{group}: --columns {reading.columns!r} goes with TSV, CSV and JSON lines, not plain text")
    if group.form == "jsonl":
        if numbers is not None:
            raise SeqloomError(f"{file}: --columns {reading.columns!r}: JSON lines have names, not numbers")
        usual = group.keys if group.values == "text" else ("text", "label")
        return replace(group, keys=names or usual), found
    if numbers is not None or (names is None and group.form != "csv"):
        return replace(group, columns=numbers), found
    first = next(found, None)
    fields = first[1] if first is not None and isinstance(first[1], list) else []
    if names is not None:
        if first is not None and isinstance(first[1], LineError):
            raise SeqloomError(f"{file}:1: {first[1]}")
        return replace(group, columns=header(names, fields, file), header=True), found
    if looks_like_header(fields):
        note = f"{file}: the first line, {','.join(fields)}, names the columns and is no example"
        return replace(group, header=True, notes=(note,)), found
    if len(fields) > 2:
        note = f"{file}: {len(fields)} columns, and the first line is data: the first column is the source, the others"
        group = replace(group, notes=(f"{note} are targets; --columns chooses by number or by name",))
    return group, found if first is None else chain([first], found)


def _resolve(group: Group, reading: Reading) -> Group:
    """The group with its columns known, and what there is to say about its files."""
    group = replace(group, values=reading.values)
    if group.form == FOLDER:
        labels = sorted({label for label, _ in inside(group.paths[0])})
        note = f"{group}: a folder: every file is a text, with the name of its folder as label: {', '.join(labels)}"
        return replace(with_columns(group, reading, iter(()))[0], notes=(note,))
    group, _ = with_columns(group, reading, records(group, read_lines(group.files[0], group.paths[0])))
    marks = tuple(f"{name}: the byte order mark at its start was dropped" for name in _marked(group))
    return replace(group, notes=marks + group.notes)


def inside(folder: Path) -> list[tuple[str, Path]]:
    """The files of a folder with a folder for each label, in order, each with its label. Hidden ones do not count."""
    found = [
        (one.name, file)
        for one in sorted(folder.iterdir())
        if one.is_dir() and not one.name.startswith(".")
        for file in sorted(one.iterdir())
        if file.is_file() and not file.name.startswith(".")
    ]
    if not found:
        raise SeqloomError(
            f"{folder}: holds no texts: expected a folder for each label, and in it a file for each text"
        )
    return found


def _marked(group: Group) -> Iterator[str]:
    """Files that begin with a byte order mark."""
    for file, path in zip(group.files, group.paths, strict=True):
        with open_bytes(file, path) as stream, suppress(OSError, EOFError, zlib.error):
            if stream.read(len(BOM)) == BOM:
                yield file


def records(group: Group, lines: Iterator[Line]) -> Iterator[Record]:
    """Lines cut into fields. JSON, like plain text, is one field."""
    if group.form == "csv":
        return csv_records(lines)
    return line_records(lines, "\t" if group.form == "tsv" else None)
