"""Broken lines: an error, or left out and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.file_groups import FOLDER, Group, group_files
from seqloom.data.formats.pairs import Example, Problem
from seqloom.data.formats.pairs_fast import Pairs, read_bulk
from seqloom.errors import SeqloomError
from seqloom.plural import counted

MAX_LISTED = 20  # broken lines that are listed
SHOWN = 3  # of them in a note


@dataclass
class Skipped:
    """Counts of broken lines that were left out."""

    reasons: Counter[str] = field(default_factory=Counter)  # by code
    first: list[Problem] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.reasons.total()

    def add(self, problem: Problem) -> None:
        self.reasons[problem.code] += 1
        if len(self.first) < MAX_LISTED:
            self.first.append(problem)

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "reasons": dict(self.reasons), "first": [str(problem) for problem in self.first]}


def skipped_notes(skipped: dict[str, Any]) -> Iterator[str]:
    """A note on `Skipped.to_json`; none if nothing was left out."""
    if skipped["count"]:
        reasons = ", ".join(f"{n:,} {code}" for code, n in sorted(skipped["reasons"].items()))
        more = " …" if skipped["count"] > SHOWN else ""
        lines = counted(skipped["count"], "broken lines")
        yield f"left out {lines} ({reasons}): {'; '.join(skipped['first'][:SHOWN])}{more}"


def valid_pairs(group: Group, skipped: Skipped | None, longest: int | None = None) -> Iterator[Pairs]:
    """The valid examples of a group. Broken lines go to `skipped`; if that is None the first one raises."""
    good = bad = last = 0
    for found in read_bulk(group, longest):
        if isinstance(found, Pairs):
            good += len(found)
            yield found
        elif skipped is None or found.code == "pairs":  # sides that may be misaligned are never accepted
            hint = "; --max-length cuts long sides, --skip-bad leaves them out" if found.code == "long" else ""
            raise SeqloomError(f"{found}{hint}")
        elif found.line != last or group.form == FOLDER:  # both sides of one line may be broken
            bad, last = bad + 1, found.line
            skipped.add(found)
    if bad > good:
        task = "translate" if group.target_kind == "text" else "classify"
        raise SeqloomError(
            f"{group}: {bad:,} of {good + bad:,} lines are broken, more than half, too many to skip; "
            f"see them all with: seqloom data check {task} {' '.join(group.files)}"
        )


def read_examples(files: Iterable[str | Path], reading: ReadOptions) -> tuple[list[Example], list[str]]:
    """All examples of some files, and notes on them."""
    skipped = Skipped() if reading.skip_bad else None
    groups = group_files(files, reading)
    found = [
        example for one in groups for pairs in valid_pairs(one, skipped) for example in pairs.examples(one.files[0])
    ]
    notes = [text for one in groups for text in one.notes]
    return found, notes if skipped is None else [*notes, *skipped_notes(skipped.to_json())]
