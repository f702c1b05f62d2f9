"""Files from untrusted folders: links that lead out, FIFOs and devices are refused; system errors become one line."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seqloom.errors import SeqloomError


@contextmanager
def file_errors(path: Path, done: str, begun: Path | None = None, needed: int = 0) -> Iterator[None]:
    """Turn system errors in this block into one line that names the file: `PATH: could not be DONE: reason`.

    For a full disk it adds how much is free and how much is needed: at least the size of the file or folder `begun`,
    or `needed` if that is known.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        room = "" if error.errno != errno.ENOSPC or begun is None else _room(begun, needed)
        raise SeqloomError(f"{path}: could not be {done}: {error.strerror or error}{room}") from error


def _room(begun: Path, needed: int) -> str:
    with suppress(OSError):
        files = [begun, *begun.iterdir()] if begun.is_dir() else [begun]
        written = sum(file.stat().st_size for file in files if file.is_file())
        free = shutil.disk_usage(begun.parent).free + written
        amount = f"{needed:,}" if needed > written else f"more than {written:,}"
        return f": {amount} bytes are needed, and {free:,} are free in {begun.parent}"
    return ""


@contextmanager
def system_errors(what: object) -> Iterator[None]:
    """The last safety net: system errors in this block become one line with the file they are about."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SeqloomError(f"{error.filename or what}: {error.strerror or error}") from error


CONTENT_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)


@contextmanager
def content_errors(where: object) -> Iterator[None]:
    """Turn unexpected errors, caused by the content of a file, into one line that names the file."""
    try:
        yield
    except SeqloomError as error:
        if str(where) in str(error):
            raise
        raise SeqloomError(f"{where}: {error}") from error
    except CONTENT_ERRORS as error:
        if "memory" in str(error):
            raise  # that is not the file's fault
        reason = (str(error).splitlines() or [""])[0]
        raise SeqloomError(
            f"{where}: its content is not as expected: {type(error).__name__}: {reason[:200]}"
        ) from error


def open_own(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """A file in a folder of ours and nothing else: links are not followed, and a FIFO is not waited for.

    `flags` are those of os.open. A folder may come from a stranger.
    """
    mode = "ab" if flags & os.O_APPEND else "r+b" if flags & os.O_RDWR else "rb"
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # the error codes of links that may not be followed
            raise not_a_file(path, "a link") from error
        done = "read" if mode == "rb" else "written"
        raise SeqloomError(f"{path}: could not be {done}: {error.strerror or error}") from error
    if kind := kind_of(os.fstat(handle).st_mode):
        os.close(handle)
        raise not_a_file(path, kind)
    return open(handle, mode)


def check_own(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse what stands in a folder of ours in place of a file, and links that lead out of the folder.

    A folder may come from a stranger: it must not make us wait, nor read, write or delete anywhere else. The folder
    itself may be a link.
    """
    home = Path(os.path.realpath(folder))
    for path in paths:
        try:
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                raise not_a_file(path, f"a link that leads out of {folder}")
            kind = kind_of(path.stat().st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SeqloomError(f"{path}: cannot be read: {error.strerror or error}") from error
        if kind and kind != "a folder":
            raise not_a_file(path, kind)


def not_a_file(path: Path, kind: str) -> SeqloomError:
    return SeqloomError(f"{path}: is {kind}, not a file; put the file itself in its place")


def kind_of(mode: int) -> str | None:
    """What something is, if it is no plain file."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFREG: None}
    return kinds.get(stat.S_IFMT(mode), "a device")
