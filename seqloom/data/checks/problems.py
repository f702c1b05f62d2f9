"""The report of `data check`: problems one by one, problems by kind, then statistics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seqloom.data.formats.pairs import Problem

MAX_LISTED = 1_000  # problems in to_json; all are counted
MAX_KINDS = 200  # kinds distinguished by message; further ones by code
LINES_SHOWN = 5  # line numbers shown for a kind
# Codes whose messages differ from line to line.
_BY_CODE = ("scheme", "tag", "invisible", "duplicate", "overlap", "utf8")
_DETAIL = re.compile(r"\d[\d,.]*|0x\w+|'[^']*'")


@dataclass
class ProblemKind:
    """One kind of problem in a file, with its lines."""

    first: Problem
    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first of them

    def add(self, problem: Problem) -> None:
        if not self.count or problem.line < self.first.line:
            self.first = problem
        self.count += 1
        self.lines = sorted([*self.lines, problem.line])[:LINES_SHOWN]

    def __str__(self) -> str:
        message = compiler_line(self.first)
        if self.count == 1:
            return message
        more = ", …" if self.count > len(self.lines) else ""
        return f"{message} ({self.count:,} such lines: {', '.join(map(str, self.lines))}{more})"

    def to_json(self) -> dict[str, Any]:
        return {**self.first._asdict(), "count": self.count, "lines": self.lines}


def compiler_line(problem: Problem) -> str:
    """A problem in one line, in the format of compilers."""
    return f"{problem.file}:{problem.line}: {problem.kind}: {problem.reason}"


class Report:
    """Iterating reads the files and gives each `Problem`; then the statistics are complete.

    `errors`, `warnings` and the statistics read the files if that was not done yet. Subclasses implement `_problems`,
    which also fills `_statistics` with objects that have `to_json`.
    """

    _done = False

    def __iter__(self) -> Iterator[Problem]:
        self._done = False
        self._counts: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._listed: list[Problem] = []
        self._kinds: dict[tuple[str, ...], ProblemKind] = {}
        self._statistics: list[Any] = []
        for problem in self._problems():
            self._counts[problem.kind] += 1
            self._codes[problem.code] += 1
            if len(self._listed) < MAX_LISTED:
                self._listed.append(problem)
            plain = problem.code in _BY_CODE or len(self._kinds) >= MAX_KINDS
            key = problem.file, problem.kind, problem.code, "" if plain else _DETAIL.sub("…", problem.reason)
            self._kinds.setdefault(key, ProblemKind(problem)).add(problem)
            yield problem
        self._done = True

    @property
    def kinds(self) -> list[ProblemKind]:
        """Each kind of problem once, in the order of files and lines."""
        return sorted(self._read()._kinds.values(), key=lambda kind: self._position(kind.first))

    def ordered(self) -> list[Problem]:
        """All problems in the order of files and lines."""
        return sorted(self, key=self._position)

    def _position(self, problem: Problem) -> tuple[int, int]:
        files = list(dict.fromkeys(kind[0] for kind in self._kinds))
        return files.index(problem.file), problem.line

    def _problems(self) -> Iterator[Problem]:
        raise NotImplementedError

    @property
    def errors(self) -> int:
        return self._read()._counts["error"]

    @property
    def warnings(self) -> int:
        return self._read()._counts["warning"]

    @property
    def notes(self) -> list[str]:
        """Notes on the files."""
        return []

    @property
    def statistics(self) -> list[Any]:
        """One for each file, or group of files."""
        return self._read()._statistics

    def to_json(self) -> dict[str, Any]:
        return {
            "errors": self.errors,
            "warnings": self.warnings,
            "codes": dict(self._codes),
            "notes": self.notes,
            "kinds": [kind.to_json() for kind in self.kinds],
            "problems": [{**p._asdict(), "text": str(p)} for p in sorted(self._listed, key=self._position)],
            "groups": [statistics.to_json() for statistics in self.statistics],
        }

    def _read(self) -> Report:
        if not self._done:
            for _ in self:
                pass
        return self
