"""`data check` for labelled texts: broken lines, duplicates, overlap, and label counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seqloom.data.checks.pairs import Report, Statistics
from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.file_groups import FOLDER, Group, group_files
from seqloom.data.formats.pairs import MAX_LENGTH, Example, Problem
from seqloom.data.prepare.labels import LabelOptions, label_warning
from seqloom.plural import counted

SHOWN = 20  # labels shown


def check(files: list[str], *, max_length: int | None = None, reading: ReadOptions | None = None) -> LabelReport:
    """As `checks.pairs.check`, for a text and its label on every line, or a folder for each label."""
    reading = reading or ReadOptions()
    options = LabelOptions(columns=reading.columns, **reading.file_options)
    return LabelReport(group_files(files, options), MAX_LENGTH if max_length is None else max_length)


class LabelReport(Report):
    def statistics_of(self, group: Group) -> Statistics:
        return LabelStatistics(group)

    def group_warnings(self, statistics: Statistics) -> Iterator[Problem]:
        assert isinstance(statistics, LabelStatistics)
        found = label_warning(statistics.pairs, statistics.distinct_sources, len(statistics.labels))
        if found is not None and statistics.group.form != FOLDER:
            yield Problem(statistics.group.files[0], 1, found, "warning", "labels")


@dataclass
class LabelStatistics(Statistics):
    """Statistics of one group of files."""

    labels: Counter[str] = field(default_factory=Counter)

    def add(self, example: Example) -> None:
        super().add(example)
        self.labels.update(" ".join(target.split()) for target in example.targets)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"labels": dict(self.labels.most_common())}

    def summary(self) -> list[str]:
        """In three lines, for display."""
        common = ", ".join(f"{label} {count:,}" for label, count in self.labels.most_common(SHOWN))
        more = f", and {len(self.labels) - SHOWN:,} more" if len(self.labels) > SHOWN else ""
        return [
            f"{', '.join(self.group.files)}: {counted(self.pairs, 'texts')} in "
            f"{counted(self.lines + self.broken, 'lines')} ({self.group.form}), {self.distinct_sources:,} distinct, "
            f"{self.several_targets:,} of them with several labels",
            f"  text: {self.source.summary()}",
            f"  {counted(len(self.labels), 'labels')}: {common}{more}",
        ]
