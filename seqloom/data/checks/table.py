"""`data check` for tables: broken rows, duplicates, and statistics of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqloom.data.batches.table import Schema
from seqloom.data.checks import problems
from seqloom.data.checks.suspicious_text import SuspiciousText
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.column_types import normalize_field
from seqloom.data.formats.pairs import Problem
from seqloom.data.formats.table import Row, TableOptions, detect_layout, file_notes, row_entries, table_format
from seqloom.data.prepare.table import describe_columns, draft_schema
from seqloom.errors import SeqloomError
from seqloom.plural import counted


def check(files: list[str], *, max_length: int | None = None, reading: ReadOptions | None = None) -> TableReport:
    """Check tables; the first determines the columns. Iterate over the report for the problems.

    Errors are rows that training would refuse, and fields of more than `max_length` characters. Warnings are
    duplicate rows, rows that differ from another in the target only, and rows of the first table in a later one.
    """
    if not isinstance(reading, TableOptions):
        given = asdict(reading or ReadOptions())
        reading = TableOptions(**{name: value for name, value in given.items() if value is not None})
    return TableReport(files, reading, max_length)


@dataclass
class TableStatistics:
    """Statistics of one table."""

    files: list[str]
    form: str
    lines: int = 0  # usable ones
    broken: int = 0
    distinct: int = 0
    columns: list[dict[str, Any]] = field(default_factory=list)  # the target last

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"told": self.summary()}

    def summary(self) -> list[str]:
        """In lines, for display."""
        held = f"{counted(self.lines, 'rows')} in {counted(self.lines + self.broken, 'lines')}"
        first = f"{self.files[0]}: {held} ({self.form}), {self.distinct:,} distinct"
        return [first, *(f"  {_describe_column(one)}" for one in self.columns)]


class TableReport(problems.Report):
    """Of tables."""

    def __init__(self, files: Sequence[str], options: TableOptions, max_length: int | None) -> None:
        self.files, self.options, self.longest = list(files), options, max_length
        self.layout = detect_layout(self.files[:1], options)

    @property
    def notes(self) -> list[str]:
        kinds = ", ".join(f"{one['name']} {one['kind']}" for one in self.statistics[0].columns)  # pyright: ignore
        columns = (
            [f"columns: {kinds}; the last is the target. data.column_types.NAME=KIND changes a kind"] if kinds else []
        )
        return [*file_notes(self.files, self.options), *columns]

    def _problems(self) -> Iterator[Problem]:
        self._draft: Schema | None = None
        first: _Seen = {}
        for file in self.files:
            statistics, seen = TableStatistics([file], table_format(file, self.options)), {}
            self._statistics.append(statistics)
            rows: list[Row] = []
            for entry in self._entries(file):
                if isinstance(entry, Row):
                    rows.append(entry)
                else:
                    statistics.broken += entry.kind == "error"
                    yield entry
            yield from self._values(rows, statistics)
            yield from _duplicates(rows, seen, first)
            statistics.distinct = len(seen)
            first = first or seen

    def _entries(self, file: str) -> Iterator[Row | Problem]:
        """The rows of a file, and problems of its lines."""
        marks = SuspiciousText(table_format(file, self.options))
        for entry in row_entries(file, self.layout, observe=marks.observe):
            marks.record_start(entry.line)
            yield entry
            yield from marks.problems
            marks.problems.clear()
        yield from marks.line_ends()

    def _values(self, rows: list[Row], statistics: TableStatistics) -> Iterator[Problem]:
        """Problems of fields, by the column types of the first table."""
        if not rows:
            yield Problem(statistics.files[0], 1, "the table has no rows", code="empty")
            return
        try:
            self._draft = self._draft or draft_schema(rows, self.layout, self.options)
        except SeqloomError as error:
            yield Problem(statistics.files[0], 1, str(error), code="columns")
            return
        good = []
        for row in rows:
            problem = self._draft.problem(row) or self._too_long(row)
            if problem is None:
                good.append(row)
            else:
                statistics.broken += 1
                yield problem
        statistics.lines, statistics.columns = len(good), describe_columns(good, self._draft) if good else []

    def _too_long(self, row: Row) -> Problem | None:
        for name, text in zip(self.layout.columns, row.fields, strict=True):
            if self.longest is not None and len(text) > self.longest:
                reason = f"column {name!r} has {len(text):,} characters; more than {self.longest:,}"
                return Problem(row.file, row.line, reason, code="long")
        return None


_Seen = dict[tuple[str, ...], tuple[int, str]]  # line of the first occurrence, and its target


def _duplicates(rows: Sequence[Row], seen: _Seen, first: _Seen) -> Iterator[Problem]:
    """Rows that appeared before: in the same table, or in the first."""
    for row in rows:
        fields, target = tuple(map(normalize_field, row.fields)), normalize_field(row.target)
        if fields in seen:
            line, other = seen[fields]
            reason = f"duplicate: the same row as in line {line}"
            if other != target:
                reason = f"the same row as in line {line}, but there the target is {other!r} and here {target!r}"
            yield Problem(row.file, row.line, reason, "warning", "duplicate")
        elif fields in first:
            yield Problem(
                row.file, row.line, f"overlap: line {first[fields][0]} of the first table", "warning", "overlap"
            )
        seen.setdefault(fields, (row.line, target))


def _describe_column(column: dict[str, Any]) -> str:
    """A column in one line."""
    if column["kind"] == "category":
        commonest = ", ".join(f"{value} {count:,}" for value, count in column["commonest"][:3])
        what = f"{column['values']:,} values ({commonest}{', …' if column['values'] > 3 else ''})"
    elif column["kind"] == "text":
        what = ""
    else:
        what = f"mean {column['mean']:.4g}" + (
            f", deviation {column['deviation']:.4g}" if column["kind"] == "number" else ""
        )
    gaps = f"{column['missing']:,} missing" if column["missing"] else ""
    return f"{column['name']}: {', '.join(part for part in (column['kind'], what, gaps) if part)}"
