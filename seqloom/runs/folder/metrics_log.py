"""`metrics.jsonl`: a line for every few steps and every validation. Lines are appended, and cut back on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from seqloom.documents import parse_json
from seqloom.errors import SeqloomError
from seqloom.safety import file_errors, open_own
from seqloom.setting_names import LOG_KEYS

LONGEST_LINE = 1 << 24  # bytes of a line: of many languages or labels a line of scores may have some thousands
TIMING_KEYS = ("seconds", "tokens_per_second")  # what differs between two runs that are otherwise the same


class MetricsLog:
    """`on_line` is called with every line that is added."""

    def __init__(self, path: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self.on_line = path, on_line

    def cut_back(self, size: int) -> None:
        """Remove the lines after a checkpoint: the resumed run writes them again."""
        with file_errors(self.path, "cut back"):
            if self._exists():
                with open_own(self.path, os.O_RDWR) as file:
                    file.truncate(min(size, os.fstat(file.fileno()).st_size))

    def sync(self) -> int:
        """Flush the lines before a checkpoint to disk; returns the size of the file."""
        with file_errors(self.path, "flushed to disk"):
            if not self._exists():
                return 0
            with open_own(self.path) as file:
                os.fsync(file.fileno())
                return os.fstat(file.fileno()).st_size

    def add(self, line: dict[str, Any]) -> None:
        with file_errors(self.path, "written"), open_own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
        if self.on_line is not None:
            self.on_line(line)

    def lines(self) -> list[dict[str, Any]]:
        with file_errors(self.path, "read"):
            if not self._exists():
                return []
            with open_own(self.path) as lines:  # separated by "\n" alone: a sample may hold other line ends
                return list(self._parsed(lines))

    def _parsed(self, lines: BinaryIO) -> Iterator[dict[str, Any]]:
        for number, raw in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), 1):
            where = f"{self.path}:{number}"
            if len(raw) > LONGEST_LINE:
                raise SeqloomError(f"{where}: cannot be read: a line of more than {LONGEST_LINE:,} bytes")
            line = parse_json(raw, where)
            if not isinstance(line, dict):
                raise SeqloomError(f"{where}: expected keys and values")
            yield {LOG_KEYS.get(str(name), str(name)): value for name, value in line.items()}

    def _exists(self) -> bool:
        """A dangling link exists too: opening it is refused."""
        return os.path.lexists(self.path)


class NoMetricsLog(MetricsLog):
    """For a rank that is not the first: nothing is written."""

    def cut_back(self, size: int) -> None: ...

    def sync(self) -> int:
        return 0

    def add(self, line: dict[str, Any]) -> None: ...
