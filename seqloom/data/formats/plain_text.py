"""Running text: plain files of any size, read in chunks.

A chunk ends at a line end, or before a blank in a very long line, so that words and characters stay whole.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.encodings import UTF8
from seqloom.data.files.file_format import detect_format
from seqloom.data.files.file_groups import Group, first_column_only, resolve_columns, text_group
from seqloom.data.files.lines import BLOCK, BOM, LineError, decode, local_path, open_bytes
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.pairs import Problem, read_sources
from seqloom.errors import SeqloomError

_BLANK = re.compile(rb"[ \t](?=[^ \t]*$)")
TABLES = (".tsv", ".csv", ".jsonl")


class RawChunk(NamedTuple):
    """Bytes of a file, from its line `line` on; the first of them may be the rest of that line."""

    line: int
    content: bytes


def raw_chunks(file: str, path: Path, encoding: str = UTF8, size: int = BLOCK) -> Iterator[RawChunk]:
    """The bytes of a file, `size` or more at a time. A byte order mark at its start is dropped."""
    line, rest = 1, b""
    with open_bytes(file, path, encoding) as stream:
        try:
            first = True
            while chunk := stream.read(size):
                chunk, first = rest + (chunk.removeprefix(BOM) if first else chunk), False
                end = _chunk_end(chunk)
                if end:
                    yield RawChunk(line, chunk[:end])
                    line += chunk.count(b"\n", 0, end)
                rest = chunk[end:]
            if rest:
                yield RawChunk(line, rest)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise SeqloomError(f"{file}:{line}: the .gz file is cut off or damaged here ({error})") from error
        except OSError as error:
            raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def _chunk_end(chunk: bytes) -> int:
    """The end of a chunk: after the last line end, or before the last blank. 0: read more first."""
    if end := chunk.rfind(b"\n") + 1:
        return end
    if blank := _BLANK.search(chunk):
        return blank.start()
    if len(chunk) < 4 * BLOCK:
        return 0
    start = len(chunk) - 1  # no blank, as in Chinese: before the last character
    while start and chunk[start] & 0xC0 == 0x80:
        start -= 1
    return start


def text_chunks(file: str, reading: ReadOptions, skipped: Skipped | None = None) -> Iterator[str]:
    """The text of a file; lines end in "\\n". Broken lines go to `skipped`; if that is None the first one raises.

    Of a table (.tsv, .csv, .jsonl) with `columns`: the first of them, one line per row.
    """
    name = "stdin" if file == "-" else file
    if _is_table(file, reading):
        yield from (f"{text}\n" for text in read_sources(file, reading))
        return
    path = local_path(file)
    for raw in raw_chunks(name, path, detect_format(file, path, encoding_only(reading)).encoding):
        if text := "".join(_decode_chunk(name, raw, skipped)):
            yield text


def _is_table(file: str, reading: ReadOptions) -> bool:
    return reading.columns is not None and file.removesuffix(".gz").endswith(TABLES)


def encoding_only(reading: ReadOptions) -> ReadOptions:
    """Options for plain text: only the encoding."""
    return ReadOptions(encoding=reading.encoding, detect=reading.detect)


def text_file_group(file: str, reading: ReadOptions) -> Group:
    """The group of a file as `text_chunks` reads it, with notes."""
    if _is_table(file, reading):
        return resolve_columns(text_group(file, reading), first_column_only(reading))
    one = text_group(file, encoding_only(reading))
    non_default = tuple(code for code in one.encodings if code != UTF8)
    return replace(one, notes=one.notes[:1] if non_default else (), non_default=non_default)


def _decode_chunk(name: str, raw: RawChunk, skipped: Skipped | None) -> Iterator[str]:
    """Decode a chunk: as a whole if nothing is suspicious, else line by line."""
    if b"\r" not in raw.content and b"\0" not in raw.content and BOM not in raw.content:
        try:
            yield raw.content.decode()
            return
        except UnicodeDecodeError:
            pass
    for number, line in enumerate(split_lines(raw.content), raw.line):
        try:
            yield decode(line) + ("\n" if line.endswith(b"\n") else "")
        except LineError as broken:
            problem = Problem(name, number, str(broken), code=broken.code)
            if skipped is None:
                raise SeqloomError(f"{problem}; --skip-bad leaves such lines out") from broken
            skipped.add(problem)


def split_lines(content: bytes) -> list[bytes]:
    """Lines end at "\\n" only."""
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
