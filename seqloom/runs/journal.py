"""`metrics.jsonl`: a line for every few steps and every validation. Only appended to, and cut back on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqloom.errors import SeqloomError

TIMES = ("seconds", "tokens_per_second")  # what differs between two runs that are otherwise the same


class Journal:
    """`heard` is told every line that is added, for whoever watches."""

    def __init__(self, path: Path, heard: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self.heard = path, heard

    def cut_back(self, size: int) -> None:
        """Forget what was written after a checkpoint: the resumed run writes it again."""
        if self.path.exists():
            os.truncate(self.path, min(size, self.path.stat().st_size))

    def sync(self) -> int:
        """Make sure that what a checkpoint counts on is on the disk; gives the size."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def add(self, line: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            raise SeqloomError(f"{self.path}: could not be written: {error.strerror or error}") from error
        if self.heard is not None:
            self.heard(line)

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8") as lines:  # which end at "\n" only: a sample may hold other ends
            return [json.loads(line) for line in lines]


class NoJournal(Journal):
    """For a rank that is not the first: the same, and nothing is written."""

    def cut_back(self, size: int) -> None: ...

    def sync(self) -> int:
        return 0

    def add(self, line: dict[str, Any]) -> None: ...
