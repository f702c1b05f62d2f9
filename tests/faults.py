"""Faults of the file system by number: the n-th call that touches a folder fails, or the process is dead from there on.

with Faults(folder) as calls: work()                      counts: calls.seen
with Faults(folder, at=7, error=errno.EIO): work()        the seventh fails
with Faults(folder, at=7, error=None): work()             killed there: nothing after it happens, no tidying either
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors

BY_PATH = ("open", "mkdir", "unlink", "rmdir", "rename", "replace", "truncate", "scandir", "listdir", "stat", "lstat")
REAL = {name: getattr(os, name) for name in (*BY_PATH, "fsync", "close")}
OPEN, SAFE_OPEN = io.open, safetensors.safe_open


class Killed(BaseException):
    """What a process that is gone does not catch."""


class Faults:
    """`lasting`: every later call fails as well, as on a full disk."""

    def __init__(self, folder: Path, at: int = 0, error: int | None = 0, lasting: bool = False) -> None:
        self.folder, self.at, self.error, self.lasting = os.fspath(folder), at, error, lasting
        self.seen: list[str] = []
        self.handles: dict[int, str] = {}
        self.patches = [mock.patch.object(os, name, self._by_path(name)) for name in BY_PATH]
        self.patches += [mock.patch.object(os, name, getattr(self, f"_{name}")) for name in ("fsync", "close")]
        self.patches += [mock.patch.object(module, "open", self._opened) for module in (io, builtins)]
        self.patches += [mock.patch.object(safetensors, "safe_open", self._safe_open)]

    def __enter__(self) -> Faults:
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *about: object) -> None:
        for patch in reversed(self.patches):
            patch.stop()

    def hit(self, call: str, path: str) -> None:
        self.seen.append(f"{call} {path.removeprefix(self.folder)}")
        now = len(self.seen)
        if self.at and (now == self.at or (now > self.at and (self.lasting or self.error is None))):
            if self.error is None:
                raise Killed
            raise OSError(self.error, os.strerror(self.error), path)

    def _ours(self, path: Any) -> str | None:
        """The path of a name or a handle, if it is in the folder."""
        if isinstance(path, int):
            return self.handles.get(path)
        name = os.fspath(path)
        return name if isinstance(name, str) and name.startswith(self.folder) else None

    def _by_path(self, name: str) -> Callable[..., Any]:
        def call(path: Any = ".", *more: Any, **named: Any) -> Any:
            ours = None if named.get("dir_fd") is not None else self._ours(path)
            if ours is not None:
                self.hit(name, ours)
            done = REAL[name](path, *more, **named)
            if name == "open" and ours is not None:
                self.handles[done] = ours
            return done

        return call

    def _fsync(self, handle: int) -> None:
        if handle in self.handles:
            self.hit("fsync", self.handles[handle])
            return  # what a test writes need not survive a loss of power
        REAL["fsync"](handle)

    def _close(self, handle: int) -> None:
        self.handles.pop(handle, None)
        REAL["close"](handle)

    def _safe_open(self, path: Any, *more: Any, **named: Any) -> Any:
        if (ours := self._ours(path)) is not None:
            self.hit("safe_open", ours)
        return SAFE_OPEN(path, *more, **named)

    def _opened(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
        ours = self._ours(file)
        if ours is None:
            return OPEN(file, mode, buffering, *more, **named)
        if not isinstance(file, int):
            self.hit(f"open-{mode}", ours)
        raw = _Raw(self, file, ours, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffer: Any = kind(raw)  # pyright: ignore[reportArgumentType]
        return buffer if "b" in mode else io.TextIOWrapper(buffer, *more, **named)


class _Raw(io.FileIO):
    """A file whose every call counts."""

    def __init__(self, faults: Faults, file: Any, path: str, mode: str) -> None:
        super().__init__(file, mode)
        self.faults, self.path = faults, path
        faults.handles[self.fileno()] = path

    def write(self, chunk: Any, /) -> int:
        self.faults.hit("write", self.path)
        return super().write(chunk)

    def readinto(self, buffer: Any, /) -> int:
        self.faults.hit("read", self.path)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self.faults.hit("read", self.path)
        return super().readall()

    def truncate(self, size: int | None = None, /) -> int:
        self.faults.hit("truncate", self.path)
        return super().truncate(size)

    def close(self) -> None:
        if not self.closed:
            self.faults.handles.pop(self.fileno(), None)
        super().close()
