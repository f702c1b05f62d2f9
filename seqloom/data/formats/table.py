"""Reading tables: CSV and TSV, with a header or columns by number, and JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqloom.data.encoding.text_options import CutTextOptions, TokenOptions
from seqloom.data.files.columns import ReadOptions, Record, delimiter_name, line_records, missing_delimiter
from seqloom.data.files.csv import csv_records
from seqloom.data.files.file_format import detect_format
from seqloom.data.files.lines import STDIN, LineError, local_path, read_lines
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.column_types import KINDS, parse_number
from seqloom.data.formats.json_lines import json_object, json_text
from seqloom.data.formats.pairs import LineObserver, Problem
from seqloom.errors import SeqloomError, known
from seqloom.plural import counted

NO_HEADER = "if the first line is data, say data.header=false"


@dataclass(frozen=True, kw_only=True)
class TableColumns(ReadOptions):
    """The columns of a table, and their types.

    `columns`: those that are read, by name or, without a header, by number from 1; default: all. `header`: false if the
    first line is data; then columns are named by number. `target`: the column to predict, by name or number; default:
    the last. `exclude`: columns that are left out. `column_types`: number, yes, category or text by column name, where
    detection is wrong. `flag_missing`: add a value to a number or yes/no, 1 where it is missing. `class_weights`: of
    the classes in the loss: none, balanced, or as in spam=3,ham=1.
    """

    target: str | int | None = None
    exclude: str | None = None
    column_types: dict[str, str] = field(default_factory=dict)
    flag_missing: bool = False
    class_weights: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        # In YAML, and so in --set, a bare yes is true, and a column may be named 5.
        if not self.header and self.column_names is not None and self.column_numbers is None:
            raise SeqloomError(f"--columns {self.columns!r}: without a header columns have numbers, not names")
        kinds = {str(name): "yes" if kind is True else kind for name, kind in self.column_types.items()}
        for name, kind in kinds.items():
            known(kind, KINDS, f"kind of the column {name!r}")
        object.__setattr__(self, "column_types", kinds)

    @property
    def excluded(self) -> tuple[str, ...]:
        return () if self.exclude is None else tuple(name.strip() for name in str(self.exclude).split(","))


@dataclass(frozen=True, kw_only=True)
class TableOptions(CutTextOptions, TokenOptions, TableColumns):
    """The `data` section of the configuration for tables. Limits of texts apply to text columns."""

    header: bool = True  # repeated here: every base has the default of `ReadOptions`
    max_length: int | None = 200


class Row(NamedTuple):
    fields: tuple[str, ...]  # of all columns but the target
    target: str  # empty if not needed
    file: str
    line: int  # counted from 1


@dataclass(frozen=True)
class Layout:
    """The columns of a table in order, and its target."""

    columns: tuple[str, ...]  # without the target
    target: str
    numbered: bool = False  # no header: columns are named by number
    reading: ReadOptions = field(default_factory=ReadOptions, compare=False)  # how files are written

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.columns, self.target)


def detect_layout(files: Sequence[str], options: TableOptions) -> Layout:
    """The columns of the first training file; of JSON lines all keys of all files."""
    if not files:
        raise SeqloomError("no training files were given")
    names = _names(files, options)
    target = _target(options.target, names)
    for name in options.excluded:
        known(name, names, "column to leave out")
        if name == target:
            raise SeqloomError(f"without: the column {name!r} is the target")
    for name in options.column_types:
        known(name, names, "column of data.column_types")
    kept = tuple(name for name in names if name != target and name not in options.excluded)
    if not kept:
        raise SeqloomError(f"{files[0]}: no column is left to tell {target!r} from")
    written = ReadOptions(delimiter=options.delimiter, encoding=options.encoding, detect=options.detect)
    return Layout(kept, target, options.column_numbers is not None or not options.header, written)


def _target(wanted: str | int | None, names: Sequence[str]) -> str:
    if wanted is None:
        return names[-1]
    name = str(wanted)
    if name not in names and name.isascii() and name.isdigit() and 1 <= int(name[:6]) <= len(names):
        return names[int(name) - 1]
    return known(name, names, "target column")


def _names(files: Sequence[str], options: TableOptions) -> list[str]:
    """The columns to be read, the target among them."""
    file = str(files[0])
    kind = table_format(file, options)
    if options.column_numbers is not None or not options.header:
        if kind == "jsonl":
            raise SeqloomError(f"{file}: JSON lines have names: columns have no numbers there, and there is no header")
        numbers = options.column_numbers or range(len(_first(file, _records(file, options))))
        return [str(column + 1) for column in numbers]
    every = _keys(files, options) if kind == "jsonl" else _header(file, options, _records(file, options))
    if len(every) < 2:
        raise SeqloomError(f"{file}: a table has at least two columns, one of them the target")
    return [known(name, every, f"column of {file}") for name in options.column_names or every]


def _keys(files: Sequence[str], reading: ReadOptions) -> list[str]:
    """All keys of JSON lines, in order of appearance."""
    found: dict[str, None] = {}
    for file in map(str, files):
        for _, record in _records(file, reading):
            try:
                found |= dict.fromkeys(json_object(record[0], ())) if isinstance(record, list) else {}
            except LineError:
                continue  # reported when the row is read
    return list(found)


def table_format(name: str, reading: ReadOptions) -> str:
    """csv, tsv or jsonl."""
    kind = detect_format(name, local_path(name), reading).kind
    if kind == "parallel":
        raise SeqloomError(f"{name}: a table is a .csv, .tsv or .jsonl file")
    return kind


def file_notes(files: Iterable[str], reading: ReadOptions) -> list[str]:
    """Notes on the formats of files."""
    return [note for file in files for note in detect_format(file, local_path(file), reading).notes]


def _records(name: str, reading: ReadOptions, observe: LineObserver | None = None) -> Iterator[Record]:
    path = local_path(name)
    found = detect_format(name, path, reading)
    lines = read_lines(name, path, found.encoding)
    lines = lines if observe is None else observe(name, lines)
    return csv_records(lines, found.separator) if found.kind == "csv" else line_records(lines, found.separator or None)


def _header(file: str, reading: ReadOptions, found: Iterator[Record]) -> list[str]:
    """The names in the first line; unnamed columns, such as the index of a spreadsheet, get one."""
    first = _first(file, found)
    names = [name.strip() or f"column {place}" for place, name in enumerate(first, 1)]
    if len(names) == 1:
        sign = detect_format(file, local_path(file), reading).separator
        reason = str(missing_delimiter(first[0], sign)).partition(":")[0]
        raise SeqloomError(
            f"{file}:1: {reason}: expected the names of at least two columns, {delimiter_name(sign)} between"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        hint = f"; {NO_HEADER}" if parse_number(twice) is not None else ""
        raise SeqloomError(f"{file}:1: two columns are called {twice!r}{hint}")
    return names


def _first(file: str, found: Iterator[Record]) -> list[str]:
    first = next(found, None)
    if first is None:
        raise SeqloomError(f"{file}: the file is empty")
    if isinstance(first[1], LineError):
        raise SeqloomError(f"{file}:1: {first[1]}")
    return first[1]


def row_entries(
    file: str, layout: Layout, need_target: bool = True, observe: LineObserver | None = None
) -> Iterator[Row | Problem]:
    """The rows of a file; a broken one gives a `Problem`. Columns are found by name. `observe` passes lines through."""
    kind, name = table_format(file, layout.reading), "stdin" if file == STDIN else file
    found = _records(file, layout.reading, observe)
    places = None if kind == "jsonl" else _find_columns(file, found, layout, need_target)
    width: int | None = None if places is None or layout.numbered else len(places.names)
    for line, record in found:
        try:
            if isinstance(record, LineError):
                raise record
            if places is None:
                fields = fields_from_json(record[0], layout)
            else:
                width = width or len(record)  # without a header the first line decides
                fields = _select_fields(record, places, width)
            if need_target and not fields[-1].strip():
                raise LineError(f"the target ({layout.target}) is empty", "empty")
            yield Row(fields[:-1], fields[-1], name, line)
        except LineError as broken:
            yield Problem(name, line, str(broken), code=broken.code)


class _Positions(NamedTuple):
    names: list[str]
    columns: list[int | None]  # of `Layout.all`; None: a missing target that is not needed


def _find_columns(file: str, found: Iterator[Record], layout: Layout, need_target: bool) -> _Positions:
    if layout.numbered:
        return _Positions([], [int(name) - 1 for name in layout.all])
    names = _header(file, layout.reading, found)
    places: list[int | None] = []
    for name in layout.all:
        if name == layout.target and name not in names and not need_target:
            places.append(None)
            continue
        try:
            places.append(names.index(known(name, names, "column")))
        except SeqloomError as error:
            raise SeqloomError(f"{file}:1: {error}") from None
    return _Positions(names, places)


def _select_fields(record: list[str], places: _Positions, width: int) -> tuple[str, ...]:
    if record == [""]:
        raise LineError("empty line; expected a row of the table", "empty")
    if len(record) != width:
        origin = "the first line names" if places.names else "the first line has"
        raise LineError(f"{counted(len(record), 'fields')}, but {origin} {width}", "columns")
    last = max(column or 0 for column in places.columns)
    if last >= width:
        raise LineError(f"column {last + 1} is missing: the line has {width} fields", "columns")
    return tuple("" if column is None else record[column] for column in places.columns)


def fields_from_json(text: str, layout: Layout) -> tuple[str, ...]:
    """The fields of an object in the order of `Layout.all`. Absent keys and null are missing values."""
    value = json_object(text, layout.all)
    if not value.keys() & set(layout.all):
        known_keys = ", ".join(layout.columns)
        raise LineError(f"none of its keys is a column of the table ({known_keys})", "columns")
    return tuple(_field(value, name) for name in layout.all)


def _field(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, int | float) else json_text(found, name)


def valid_rows(
    files: Iterable[str], layout: Layout, skipped: Skipped | None, limit: int | None = None, need_target: bool = True
) -> list[Row]:
    """The valid rows of some files. Broken ones go to `skipped`; if that is None the first one raises."""
    rows: list[Row] = []
    bad = 0
    for file in files:
        for entry in row_entries(file, layout, need_target):
            if isinstance(entry, Row):
                rows.append(entry)
            elif skipped is None:
                raise SeqloomError(str(entry))
            else:
                skipped.add(entry)
                bad += 1
            if limit is not None and len(rows) == limit:
                return rows
    check_mostly_valid(list(files), bad, len(rows))
    return rows


def check_mostly_valid(files: Sequence[str], bad: int, good: int) -> None:
    """An error if more rows are broken than valid."""
    if bad > good:
        raise SeqloomError(
            f"{', '.join(files)}: {bad:,} of {good + bad:,} rows are broken, more than half, too many to skip; "
            f"see them all with: seqloom data check table {' '.join(files)}"
        )
