"""`data check` for pairs: broken lines, duplicates, overlap, and statistics of lengths."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from seqloom.data.checks import problems
from seqloom.data.checks.suspicious_text import SuspiciousText
from seqloom.data.encoding.statistics import counter_statistics
from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.file_groups import Group, group_files
from seqloom.data.formats.pairs import MAX_LENGTH, Example, Problem, read_entries, too_long
from seqloom.plural import counted

__all__ = ["Problem", "Report", "Statistics", "check"]


def check(files: list[str], *, max_length: int | None = None, reading: ReadOptions | None = None) -> Report:
    """Check `files` (see `group_files`). Iterate over the report for the problems, as they are found.

    Errors are lines that training would refuse, among them sides over `max_length` characters. Warnings are suspicious
    lines (see `suspicious_text`), duplicate pairs in a group of files, and sources of the first group that appear again
    in a later one: test data that the model has seen. Only 8-byte hashes of texts are kept.
    """
    return Report(group_files(files, reading), MAX_LENGTH if max_length is None else max_length)


class Report(problems.Report):
    """The report on pairs, see `check`."""

    def __init__(self, groups: list[Group], max_length: int = MAX_LENGTH):
        self.groups, self.max_length = groups, max_length

    def statistics_of(self, group: Group) -> Statistics:
        """Empty statistics for a group of files."""
        return Statistics(group)

    def group_warnings(self, statistics: Statistics) -> Iterator[Problem]:
        """Warnings from the statistics of a group of files."""
        return iter(())

    @property
    def notes(self) -> list[str]:
        return [note for group in self.groups for note in group.notes]

    def _problems(self) -> Iterator[Problem]:
        first: _PairHashes | None = None
        for one in self.groups:
            statistics = self.statistics_of(one)
            self._statistics.append(statistics)
            seen, marks = _PairHashes(), SuspiciousText(statistics.group.form)
            for entry in read_entries(statistics.group, observe=marks.observe):
                marks.record_start(entry.line)
                problem = entry if isinstance(entry, Problem) else too_long(entry, self.max_length)
                if problem is not None:
                    statistics.broken += 1
                    yield problem
                elif isinstance(entry, Example):
                    statistics.add(entry)
                    seen.add(entry)
                yield from marks.problems
                marks.problems.clear()
            yield from marks.problems
            if not marks.lines:
                yield Problem(statistics.group.files[0], 1, "the file is empty", code="empty")
            elif not statistics.lines and not statistics.broken:
                yield Problem(statistics.group.files[0], 1, "no example follows the names of the columns", code="empty")
            # After the group: reporting duplicates at once would need ten times the memory.
            yield from marks.line_ends()
            yield from seen.duplicates(statistics.group)
            if first is None:
                first, where = seen, statistics.group
            else:
                yield from seen.overlap(statistics.group, first, where)
            statistics.distinct_sources, statistics.several_targets = seen.sources()
            yield from self.group_warnings(statistics)


class _PairHashes:
    """Hashes of the pairs of one group, in line order."""

    def __init__(self):
        self._sources, self._pairs, self._lines = array("Q"), array("Q"), array("q")

    def add(self, example: Example) -> None:
        source = _hash(example.source)
        for target in example.targets:
            self._sources.append(source)
            self._pairs.append(_hash(f"{example.source}\0{target}"))  # no side holds a NUL
            self._lines.append(example.line)

    def duplicates(self, group: Group) -> Iterator[Problem]:
        pairs, lines = np.asarray(self._pairs), np.asarray(self._lines)
        _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        earliest = first[inverse]
        last = 0
        for place in np.flatnonzero(earliest != np.arange(len(pairs))):
            line = int(lines[place])
            if line != last:  # several targets of one line are one warning
                reason = f"duplicate: the same pair as in line {lines[earliest[place]]}"
                yield Problem(group.files[0], line, reason, "warning", "duplicate")
            last = line

    def overlap(self, group: Group, first: _PairHashes, where: Group) -> Iterator[Problem]:
        known, places = np.unique(np.asarray(first._sources), return_index=True)
        if not len(known):
            return
        sources, lines = np.asarray(self._sources), np.asarray(self._lines)
        near = np.minimum(np.searchsorted(known, sources), len(known) - 1)
        last = 0
        for row in np.flatnonzero(known[near] == sources):
            line = int(lines[row])
            if line != last:  # several references of one source are one warning
                origin = f"{where.files[0]}:{first._lines[int(places[near[row]])]}"
                reason = f"overlap: the source stands already in {origin}"
                yield Problem(group.files[0], line, reason, "warning", "overlap")
            last = line

    def sources(self) -> tuple[int, int]:
        """The number of distinct sources, and of those with several distinct targets."""
        _, first = np.unique(np.asarray(self._pairs), return_index=True)
        _, counts = np.unique(np.asarray(self._sources)[first], return_counts=True)
        return len(counts), int((counts > 1).sum())


@dataclass
class Statistics:
    """Statistics of one group of files."""

    group: Group
    lines: int = 0  # usable ones
    broken: int = 0
    pairs: int = 0
    same: int = 0  # pairs whose target is the source
    distinct_sources: int = 0
    several_targets: int = 0  # sources with more than one distinct target
    source: Side = field(default_factory=lambda: Side())
    target: Side = field(default_factory=lambda: Side())

    def add(self, example: Example) -> None:
        self.lines += 1
        self.source.add(example.source)
        for target in example.targets:
            self.pairs += 1
            self.same += target == example.source
            self.target.add(target)

    def to_json(self) -> dict[str, Any]:
        numbers = ("lines", "broken", "pairs", "same", "distinct_sources", "several_targets")
        return {
            "files": list(self.group.files),
            "form": self.group.form,
            **{name: getattr(self, name) for name in numbers},
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "told": self.summary(),
        }

    def summary(self) -> list[str]:
        """In three lines, for display."""
        return [
            f"{', '.join(self.group.files)}: {counted(self.pairs, 'pairs')} in "
            f"{counted(self.lines + self.broken, 'lines')} ({self.group.form}), "
            f"{counted(self.distinct_sources, 'distinct sources')}, {self.several_targets:,} of them with several "
            f"targets, {counted(self.same, 'pairs')} with target = source",
            *(f"  {name}: {side.summary()}" for name, side in (("source", self.source), ("target", self.target))),
        ]


@dataclass
class Side:
    """Lengths and characters of all sources, or of all targets."""

    characters: Counter[int] = field(default_factory=Counter)  # how many texts have this many characters
    words: Counter[int] = field(default_factory=Counter)
    alphabet: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        self.characters[len(text)] += 1
        self.words[len(text.split())] += 1
        self.alphabet.update(text)

    def to_json(self) -> dict[str, Any]:
        return {
            "characters": counter_statistics(self.characters),
            "words": counter_statistics(self.words),
            "distinct_characters": len(self.alphabet),
        }

    def summary(self) -> str:
        units = {"characters": counter_statistics(self.characters), "words": counter_statistics(self.words)}
        lengths = "; ".join(
            f"{unit} mean {numbers['mean']:.1f}, median {numbers['median']:g}, 95 % ≤ {numbers['p95']:g}, "
            f"longest {numbers['longest']:,}"
            for unit, numbers in units.items()
        )
        return f"{lengths}; {counted(len(self.alphabet), 'distinct characters')}"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
