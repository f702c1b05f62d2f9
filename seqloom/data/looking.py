"""What every look through data gives: problems one by one, then numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from seqloom.data.read import Problem

KEPT = 1_000  # problems that to_json lists; all are counted


class Report:
    """Iterating reads the files and gives each `Problem`; after that the numbers are there.

    `errors`, `warnings` and all other numbers read the files themselves if nobody has iterated yet. A kind of data has
    its own `_problems`, which fills `_statistics` with whatever has a `to_json` with its lines for the eye (`told`).
    """

    _done = False

    def __iter__(self) -> Iterator[Problem]:
        self._done = False
        self._counts: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._kept: list[Problem] = []
        self._statistics: list[Any] = []
        for problem in self._problems():
            self._counts[problem.kind] += 1
            self._codes[problem.code] += 1
            if len(self._kept) < KEPT:
                self._kept.append(problem)
            yield problem
        self._done = True

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
        """What was decided about the files."""
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
            "problems": [{**problem._asdict(), "text": str(problem)} for problem in self._kept],
            "groups": [statistics.to_json() for statistics in self.statistics],
        }

    def _read(self) -> Report:
        if not self._done:
            for _ in self:
                pass
        return self
