"""Standard streams as shells, cron and services leave them: closed, full, without a reader, not in UTF-8."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from seqloom.errors import SeqloomError

NAMES = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Replace closed streams by /dev/null, before another file gets their numbers.

    Letters that the encoding of standard output does not have are written as \\u4e2d; file names, which may hold any
    bytes, as these bytes.
    """
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            with suppress(OSError):
                handle = os.open(os.devnull, os.O_RDWR)
                if not _is_open(number):
                    os.dup2(handle, number)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    _set_encoding_errors("surrogateescape" if _is_utf8(sys.stdout) else "backslashreplace")


def exact_printer(end: str = "\n", flush: bool = False) -> Callable[[str], None]:
    """As `print`, for output that other programs read, such as predictions: a letter that the encoding does not have is
    an error."""
    _set_encoding_errors("strict")

    def put(text: str) -> None:
        try:
            print(text, end=end, flush=flush)
        except UnicodeEncodeError as error:
            letter = ascii(error.object[error.start])
            raise SeqloomError(
                f"standard output is in {sys.stdout.encoding}, which has no {letter}; set PYTHONIOENCODING=utf-8"
            ) from error

    return put


def flush() -> None:
    """Write out everything before Python ends; what cannot be written is dropped."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _set_encoding_errors(errors: str) -> None:
    """How letters are written that the encoding of standard output does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=errors)


def _is_utf8(stream: Any) -> bool:
    return stream.encoding.replace("-", "").replace("_", "").lower() == "utf8"


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
