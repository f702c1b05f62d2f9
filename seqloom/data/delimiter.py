"""What stands between the columns of a .csv, by its beginning."""

from __future__ import annotations

import io
from itertools import islice

from seqloom.data.columns import csv_records

_TRIED = ",;\t|"  # the first of equals wins
_LOOKED = 100  # records


def sign_in(text: str) -> str:
    """The sign between the columns of a .csv, by its beginning: the one by which most records are as wide as the
    first; a comma if none is better."""
    return max(_TRIED, key=lambda sign: (_fit(text, sign), sign == ","))


def _fit(text: str, sign: str) -> float:
    """Share of the first records that are as wide as the very first, which has several columns."""
    first = text.find("\n")
    if sign not in (text if first < 0 else text[: first + 1]) and '"' not in text[: first + 1]:
        return 0.0
    found = islice(csv_records(enumerate(io.BytesIO(text.encode(errors="replace")), 1), sign), _LOOKED)
    widths = [len(record) for _, record in found if isinstance(record, list)]
    if not widths or widths[0] < 2:
        return 0.0
    return sum(width == widths[0] for width in widths) / len(widths)
