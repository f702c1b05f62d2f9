"""The lines of a file: plain or .gz, from disk, a pipe or standard input.

Lines end at "\\n" only: U+2028, form feeds and U+0085 are text. A byte order mark at the start is dropped, and so is a
"\\r" before the line end.
"""

from __future__ import annotations

import atexit
import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

from seqloom.errors import SeqloomError

STDIN = "-"
LONGEST = 1 << 26  # bytes of one line; a file without line ends must not fill the memory
_BOM = b"\xef\xbb\xbf"


class LineError(Exception):
    """Why a line cannot be used."""


Line = tuple[int, "bytes | LineError"]


def decode(raw: bytes) -> str:
    """One line as text, without its line end."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        hint = "; the file looks like UTF-16, save it as UTF-8" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise LineError(
            f"not UTF-8: byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line{hint}"
        ) from None
    if "\0" in text:
        raise LineError(f"NUL character at character {text.index(chr(0)) + 1} of the line")
    return text


def read_lines(file: str, path: Path) -> Iterator[Line]:
    with open_bytes(file, path) as stream:
        yield from number(file, stream)


def number(file: str, stream: BinaryIO) -> Iterator[Line]:
    """Numbered raw lines. What cannot be read any further ends the stream with a `LineError`."""
    line = 0
    try:
        while raw := stream.readline(LONGEST):
            line += 1
            if line == 1:
                raw = raw.removeprefix(_BOM)
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                yield line, LineError(f"no line end within {LONGEST >> 20} MiB; is this a text file?")
                return
            yield line, raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield line + 1, LineError(f"the .gz file is cut off or damaged here ({error})")
    except OSError as error:
        raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def open_bytes(file: str, path: Path) -> BinaryIO:
    """The bytes of a file, unpacked if its name ends in .gz."""
    try:
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # pyright: ignore
    except FileNotFoundError:
        raise SeqloomError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise SeqloomError(f"{file}: is a folder, not a file") from None
    except OSError as error:
        raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def form_of(name: str, path: Path) -> str:
    plain = name.removesuffix(".gz")
    if plain.endswith(".jsonl"):
        form = "jsonl"
    elif plain.endswith(".tsv") or name == STDIN:
        form = "tsv"
    else:
        form = "parallel"
    with open_bytes(name, path) as stream:  # opened in any case: a missing file is said before any work begins
        if form == "parallel":
            first = next((raw for _, raw in number(name, stream) if isinstance(raw, bytes) and raw.strip(b"\r\n")), b"")
            form = "tsv" if b"\t" in first else form
    return form


def place(name: str) -> Path:
    """Where to read a file more than once: pipes are copied to a temporary file first."""
    try:
        if name == STDIN or stat.S_ISFIFO(os.stat(name).st_mode):
            return _spool(name)
    except FileNotFoundError:
        raise SeqloomError(f"{name}: no such file") from None
    except OSError as error:
        raise SeqloomError(f"{name}: cannot be read: {error.strerror or error}") from error
    return Path(name)


@cache
def _spool(name: str) -> Path:
    handle, path = tempfile.mkstemp(prefix="seqloom-")
    atexit.register(Path(path).unlink, missing_ok=True)
    with open(handle, "wb") as copy:
        if name == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(name, "rb") as pipe:
                shutil.copyfileobj(pipe, copy)
    return Path(path)
