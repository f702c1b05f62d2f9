"""Lines of Chinese help: between any two signs, but not within a Latin word or before a closing punctuation mark."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import cell_len
from rich.text import Text

OPENING, CLOSING = "（“《", "，。；：！？、）”》…"
# What stays on one line: a Chinese sign or a Latin word, with the punctuation around it and the blanks behind it.
_UNIT = re.compile(
    rf"[{OPENING}]*(?:[\u2e80-\u9fff]|[^\s\u2e80-\u9fff{OPENING}{CLOSING}]+)?[{CLOSING}]*\s*",
)


class ChineseText(Text):
    """A text that rich would crop, since it breaks lines at blanks alone."""

    __slots__ = ()

    def wrap(self, console: Any, width: int, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        lines = self.divide(breaks(self.plain, width))
        for line in lines:
            line.rstrip()
        return lines


def breaks(text: str, width: int) -> list[int]:
    """Where lines of at most `width` columns begin, the first one left out. A word that is wider is broken anywhere."""
    units = _UNIT.findall(text)
    units = [part for unit in units for part in (list(unit) if cell_len(unit.rstrip()) > width else [unit])]
    found, start, end = [], 0, 0
    for unit in units:
        if end > start and cell_len(text[start:end] + unit.rstrip()) > width:
            found.append(end)
            start = end
        end += len(unit)
        if "\n" in unit:
            found.append(end)
            start = end
    return [place for place in found if place < len(text)]


def chinese(text: Text) -> ChineseText:
    return ChineseText("", style=text.style, end=text.end).append_text(text)  # pyright: ignore[reportReturnType]
