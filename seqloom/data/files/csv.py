"""Records of CSV files, with the lines where they start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from seqloom.data.files.columns import Record
from seqloom.data.files.lines import Line, LineError, decode

MAX_QUOTED_LINES = 10_000  # lines that a quoted field may span; beyond, its quote was never closed


def csv_records(lines: Iterator[Line], separator: str = ",") -> Iterator[Record]:
    """Records with the line where each starts (RFC 4180: quotes may hold commas, doubled quotes and line ends).

    After a quote that is never closed, reading continues at the next line: one mistake costs one line.
    """
    ahead: deque[Line] = deque()
    while first := ahead.popleft() if ahead else next(lines, None):
        line, raw = first
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw)
            yield line, text.split(separator) if '"' not in text else _quoted_record(text, ahead, lines, separator)
        except LineError as broken:
            yield line, broken


def _quoted_record(text: str, ahead: deque[Line], lines: Iterator[Line], separator: str) -> list[str]:
    """The fields of the record that begins with the line `text`; consumes its further lines from `ahead`."""
    fields, parts, broken = split_csv(text, separator), [text], LineError("the quote is never closed", "quote")
    while fields is None:
        if len(parts) > len(ahead):
            following = next(lines, None) if len(parts) <= MAX_QUOTED_LINES else None
            if following is None:
                raise broken
            ahead.append(following)
        raw = ahead[len(parts) - 1][1]
        if isinstance(raw, LineError):
            raise broken
        try:
            parts.append(decode(raw))
            fields = split_csv("\n".join(parts), separator) if '"' in parts[-1] else None
        except LineError:
            raise broken from None
    for _ in parts[1:]:
        ahead.popleft()
    return fields


def split_csv(text: str, separator: str = ",") -> list[str] | None:
    """The fields of one record; None if a quote is still open at its end."""
    fields: list[str] = []
    place = 0
    while True:
        if text.startswith('"', place):
            close = _closing_quote(text, place + 1)
            if close < 0:
                return None
            fields.append(text[place + 1 : close].replace('""', '"'))
            place = close + 1
            if not text.startswith(separator, place) and place < len(text):
                raise LineError(f"text after the closing quote at character {place}; double quotes inside", "quote")
        else:
            end = text.find(separator, place)
            field = text[place:] if end < 0 else text[place:end]
            if field.count('"') % 2:
                at = place + field.index('"') + 1
                raise LineError(f"unbalanced quote at character {at} of the line", "quote")
            fields.append(field)
            place += len(field)
        if place >= len(text):
            return fields
        place += 1  # the separator; after the last one an empty field follows


def _closing_quote(text: str, place: int) -> int:
    """The position of the quote that closes a field (not a doubled one); -1: none."""
    while (place := text.find('"', place)) >= 0 and text.startswith('""', place):
        place += 2
    return place
