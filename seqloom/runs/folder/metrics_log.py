"""`metrics.jsonl`: a line for every few steps and every validation. Only appended to, and cut back on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from seqloom.documents import parse_json
from seqloom.errors import SeqloomError
from seqloom.safety import failing, open_own
from seqloom.setting_names import LOGGED

LONGEST = 1 << 24  # bytes of a line: of many languages or labels a line of scores may have some thousands
TIMES = ("seconds", "tokens_per_second")  # what differs between two runs that are otherwise the same


class MetricsLog:
    """`on_line` is called with every line that is added."""

    def __init__(self, path: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self.on_line = path, on_line

    def cut_back(self, size: int) -> None:
        """Forget what was written after a checkpoint: the resumed run writes it again."""
        with failing(self.path, "cut back"):
            if self._begun():
                with open_own(self.path, os.O_RDWR) as file:
                    file.truncate(min(size, os.fstat(file.fileno()).st_size))

    def sync(self) -> int:
        """Flush to disk what a checkpoint relies on; gives the size of the file."""
        with failing(self.path, "flushed to disk"):
            if not self._begun():
                return 0
            with open_own(self.path) as file:
                os.fsync(file.fileno())
                return os.fstat(file.fileno()).st_size

    def add(self, line: dict[str, Any]) -> None:
        with failing(self.path, "written"), open_own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
        if self.on_line is not None:
            self.on_line(line)

    def lines(self) -> list[dict[str, Any]]:
        with failing(self.path, "read"):
            if not self._begun():
                return []
            with open_own(self.path) as lines:  # which end at "\n" only: a sample may hold other ends
                return list(self._parsed(lines))

    def _parsed(self, lines: BinaryIO) -> Iterator[dict[str, Any]]:
        for number, raw in enumerate(iter(lambda: lines.readline(LONGEST + 1), b""), 1):
            where = f"{self.path}:{number}"
            if len(raw) > LONGEST:
                raise SeqloomError(f"{where}: cannot be read: a line of more than {LONGEST:,} bytes")
            line = parse_json(raw, where)
            if not isinstance(line, dict):
                raise SeqloomError(f"{where}: expected keys and values")
            yield {LOGGED.get(str(name), str(name)): value for name, value in line.items()}

    def _begun(self) -> bool:
        """A link that leads nowhere counts too: it is refused on opening, not followed."""
        return os.path.lexists(self.path)


class NoMetricsLog(MetricsLog):
    """For a rank that is not the first: nothing is written."""

    def cut_back(self, size: int) -> None: ...

    def sync(self) -> int:
        return 0

    def add(self, line: dict[str, Any]) -> None: ...
