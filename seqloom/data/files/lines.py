"""The lines of a file: plain or .gz, from disk, a pipe or standard input.

Lines end at "\\n" only: U+2028, form feeds and U+0085 are text. A byte order mark at the start of the file is dropped,
and so is a "\\r" before the line end.
"""

from __future__ import annotations

import atexit
import errno
import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from seqloom.data.files.binary_files import binary_majority
from seqloom.data.files.encodings import HEAD, UTF8, as_utf8, likely_encoding, undecodable_byte
from seqloom.errors import SeqloomError, missing
from seqloom.safety import file_errors

STDIN = "-"
LONGEST = 1 << 26  # bytes of one line; a file without line ends must not fill the memory
BLOCK = 1 << 20  # bytes that `line_blocks` reads at a time
BOM = b"\xef\xbb\xbf"
FILES_LOOKED_AT = 1000  # files of a folder, to report what it holds
_STEP = 1 << 14  # bytes of the beginning that are read at a time


class LineError(Exception):
    """Why a line cannot be used: a message, and a stable `code` for programs."""

    line = 1  # of the file, where it is one of many in a text

    def __init__(self, reason: str, code: str):
        super().__init__(reason)
        self.code = code


Line = tuple[int, "bytes | LineError"]


def decode(raw: bytes) -> str:
    """One line as text, without its line end."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        other = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else likely_encoding(raw)
        hint = f"; if it is {other}, --encoding {other} reads it" if other else ""
        if (byte := undecodable_byte(raw, error.start)) is not None:
            raise LineError(f"byte 0x{byte:02x} is no character in the encoding of the file", "utf8") from None
        where = f"byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line"
        raise LineError(f"not UTF-8: {where}{hint}", "utf8") from None
    if "\0" in text:
        raise LineError(f"NUL character at character {text.index(chr(0)) + 1} of the line", "nul")
    if text.startswith("\ufeff"):
        raise LineError("byte order mark in the middle of the file: were two files joined here?", "bom")
    return text


def read_lines(file: str, path: Path, encoding: str = UTF8) -> Iterator[Line]:
    with open_bytes(file, path, encoding) as stream:
        yield from number_lines(file, stream)


def number_lines(file: str, stream: BinaryIO) -> Iterator[Line]:
    """Numbered raw lines. If reading fails, the last item is a `LineError`."""
    line = 0
    try:
        while raw := stream.readline(LONGEST):
            line += 1
            if line == 1:
                raw = raw.removeprefix(BOM)
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                yield line, LineError(f"no line end within {LONGEST >> 20} MiB; is this a text file?", "endless")
                return
            if line == 1 and not raw.endswith(b"\n") and b"\r" in raw.rstrip(b"\r"):
                yield line, LineError("lines end in CR alone, as on old Macs; save the file with LF", "line-end")
                return
            yield line, raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield line + 1, LineError(f"the .gz file is cut off or damaged here ({error})", "gz")
    except OSError as error:
        raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def line_blocks(file: str, path: Path, encoding: str = UTF8) -> Iterator[Line]:
    """The same lines in blocks: the number of the first line, and the bytes up to a line end."""
    line, rest = 1, b""
    with open_bytes(file, path, encoding) as stream:
        try:
            while chunk := stream.read(BLOCK):
                if line == 1 and not rest:
                    chunk = chunk.removeprefix(BOM)
                if len(rest) + (chunk.find(b"\n") if b"\n" in chunk else len(chunk)) >= LONGEST:
                    break
                end = chunk.rfind(b"\n") + 1
                if end:
                    block = rest + chunk[:end]
                    yield line, block
                    line, rest = line + block.count(b"\n"), b""
                rest += chunk[end:]
            else:
                if line > 1:
                    if rest:
                        yield line, rest
                    return
        except (EOFError, zlib.error, gzip.BadGzipFile):
            pass
        except OSError as error:
            raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error
    # One line only, one that is too long, or damage: `number_lines` reports each.
    yield from ((place, raw) for place, raw in read_lines(file, path, encoding) if place >= line)


def read_head(file: str, path: Path) -> bytes:
    """The first bytes of a file, as far as they can be read."""
    found = b""
    with open_bytes(file, path) as stream:
        try:
            while len(found) < HEAD and (chunk := stream.read(min(HEAD - len(found), _STEP))):
                found += chunk
        except (EOFError, zlib.error, gzip.BadGzipFile):
            pass
        except OSError as error:
            raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error
    return found


def open_bytes(file: str, path: Path, encoding: str = UTF8) -> BinaryIO:
    """The bytes of a file as UTF-8, unpacked if its name ends in .gz."""
    try:
        return as_utf8(gzip.open(path) if path.suffix == ".gz" else path.open("rb"), encoding)  # pyright: ignore
    except FileNotFoundError:
        raise missing(file) from None
    except IsADirectoryError:
        inside = binary_majority(sorted(one for one in islice(path.rglob("*"), FILES_LOOKED_AT) if one.is_file()))
        raise SeqloomError(
            f"{file}: that is {inside}" if inside else f"{file}: is a folder, not a file; name the files in it"
        ) from None
    except OSError as error:
        raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def local_path(name: str) -> Path:
    """A path that can be read more than once: pipes are copied to a temporary file."""
    try:
        if name == STDIN or stat.S_ISFIFO(os.stat(name).st_mode):
            return _spool(name)
    except FileNotFoundError:
        raise missing(name) from None
    except OSError as error:
        raise SeqloomError(f"{name}: cannot be read: {error.strerror or error}") from error
    return Path(name)


@cache
def _spool(name: str) -> Path:
    handle, path = tempfile.mkstemp(prefix="seqloom-")
    atexit.register(Path(path).unlink, missing_ok=True)
    try:
        with open(handle, "wb") as copy:
            if name == STDIN:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with open(name, "rb") as pipe:
                    shutil.copyfileobj(pipe, copy)
    except OSError as error:
        if error.errno != errno.ENOSPC:  # else the pipe cannot be read
            raise
        with file_errors(Path(path), "written", Path(path)):
            raise error
    return Path(path)
