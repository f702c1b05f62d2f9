"""Detecting the delimiter of a .csv from its beginning."""

from __future__ import annotations

import io
from collections import Counter
from itertools import islice

from seqloom.data.files.columns import delimiter_name
from seqloom.data.files.csv import csv_records

_CANDIDATES = ",;\t|"  # the first of equals wins
_LOOKED = 100  # records


def detect_delimiter(text: str) -> str:
    """The delimiter of a .csv: the one by which most records have as many columns as the first; else a comma."""
    return max(_CANDIDATES, key=lambda sign: (_consistency(text, sign), sign == ","))


def _consistency(text: str, sign: str) -> float:
    """Share of records with as many columns as the first, which has several."""
    first = text.find("\n")
    if sign not in (text if first < 0 else text[: first + 1]) and '"' not in text[: first + 1]:
        return 0.0
    found = islice(csv_records(enumerate(io.BytesIO(text.encode(errors="replace")), 1), sign), _LOOKED)
    widths = [len(record) for _, record in found if isinstance(record, list)]
    if not widths or widths[0] < 2:
        return 0.0
    return sum(width == widths[0] for width in widths) / len(widths)


def single_file_hint(head: bytes, values: str) -> str:
    """The hint for a single text file where pairs are expected, by its content."""
    text = head.decode(errors="replace")
    sign = detect_delimiter(text)
    if _consistency(text, sign) >= 0.9:
        name = delimiter_name(sign)
        return f"no TAB in its first line, but {name}s seem to stand between its columns: --delimiter {name} reads it"
    if values == "text":
        return (
            "no second file to pair it with. Expected: lines of source TAB target in one file, JSON lines (.jsonl), "
            "or two parallel files one after the other, as in train.en train.de"
        )
    if label := _leading_label(text):
        how = f"its lines seem to begin with a label, as {label!r}, and a blank"
        return f"{how}: put a TAB in its place, and say --columns 2,1. Expected: lines of text TAB label"
    return "no TAB in its first line. Expected: lines of text TAB label, CSV, JSON lines (.jsonl), or a folder a label"


def _leading_label(text: str) -> str | None:
    """The most frequent first word of the lines, if few distinct words begin them."""
    found = Counter(line.split(maxsplit=1)[0] for line in text.splitlines()[:1000] if len(line.split()) > 1)
    if found.total() < 5 or 4 * len(found) > found.total():
        return next((word for word in found if word.startswith("__label__")), None)
    return found.most_common(1)[0][0]
