"""Detecting the format, the encoding and the delimiter of a file before it is read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

from seqloom.data.files.binary_files import binary_format
from seqloom.data.files.columns import SEPARATORS, InheritedDelimiter, ReadOptions, delimiter_name, delimiter_of
from seqloom.data.files.delimiter import detect_delimiter
from seqloom.data.files.encodings import ENCODING_NAMES, HEAD, UTF8, bom_encoding, detect_encoding, lookup_encoding
from seqloom.data.files.lines import BOM, STDIN, read_head
from seqloom.errors import SeqloomError


class FileFormat(NamedTuple):
    kind: str  # "tsv", "csv", "jsonl" or "parallel", which is plain text
    encoding: str
    separator: str  # between columns; "" where there are none
    notes: tuple[str, ...] = ()  # what was detected, in sentences

    @property
    def non_default(self) -> list[str]:
        """Detected properties that differ from the defaults; they enter fingerprints."""
        default = SEPARATORS.get(self.kind, "")
        return [*([self.encoding] * (self.encoding != UTF8)), *([self.separator] * (self.separator != default))]


def detect_format(name: str, path: Path, reading: ReadOptions | None = None) -> FileFormat:
    """The format by name, first bytes and `reading`. A missing file raises."""
    reading, raw = reading or ReadOptions(), read_head(name, path)
    file = "stdin" if name == STDIN else name
    if other := binary_format(raw):
        raise SeqloomError(f"{file}: that is {other}")
    encoding, notes = encoding_of(file, raw, reading)
    text = raw.removeprefix(BOM).decode(encoding, "replace").removeprefix("\ufeff")
    kind = _detect_kind(name, text, reading)
    separator = SEPARATORS.get(kind, "")
    if kind == "csv" and reading.delimiter is None and reading.detect:
        whole = text if len(raw) < HEAD else text[: text.rfind("\n") + 1] or text
        separator = detect_delimiter(whole)
        if separator != ",":
            notes += (
                f"{file}: {delimiter_name(separator)}s stand between its columns; --delimiter names another sign",
            )
    elif kind in SEPARATORS and reading.delimiter is not None:
        separator = delimiter_of(reading.delimiter)
    elif reading.delimiter is not None and not isinstance(reading.delimiter, InheritedDelimiter):
        raise SeqloomError(f"{file}: --delimiter {reading.delimiter!r} goes with TSV and CSV, not with JSON lines")
    return FileFormat(kind, encoding, separator, notes)


def encoding_of(file: str, raw: bytes, reading: ReadOptions) -> tuple[str, tuple[str, ...]]:
    """The encoding of a file by its first bytes, and notes on it."""
    dropped = (f"{file}: the byte order mark at its start was dropped",) if raw.startswith(BOM) else ()
    if reading.encoding is not None:
        encoding = lookup_encoding(reading.encoding)
        doubt = encoding != UTF8 and not raw.isascii() and detect_encoding(raw) == UTF8 and b"\0" not in raw
        doubt = doubt and _is_utf8(raw)
        message = f"{file}: read as {reading.encoding} as requested, although it is valid UTF-8"
        return encoding, (message,) if doubt else dropped if encoding == UTF8 else ()
    encoding = detect_encoding(raw) if reading.detect else UTF8
    if encoding == UTF8:
        return encoding, dropped
    why = "by the mark at its start" if bom_encoding(raw) else "detected, as it is not UTF-8"
    return encoding, (
        f"{file}: read as {ENCODING_NAMES.get(encoding, encoding.upper())}, {why}; --encoding names another",
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start > HEAD - 4
    return True


def _detect_kind(name: str, text: str, reading: ReadOptions) -> str:
    plain = name.removesuffix(".gz")
    if plain.endswith(".jsonl"):
        return "jsonl"
    if reading.delimiter is not None:
        return "tsv" if delimiter_of(reading.delimiter) == "\t" and not plain.endswith(".csv") else "csv"
    if plain.endswith((".csv", ".tsv")):
        return plain[-3:]
    first = next((line for line in io.StringIO(text, newline="\n") if line.strip("\r\n")), "")
    return "tsv" if "\t" in first or name == STDIN else "parallel"
