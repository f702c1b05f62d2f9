"""Heat maps as SVG, by hand: a token at every row and column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seqloom.inspection.attention_maps import columns as width_of
from seqloom.reporting.charts.charts import cropped, empty, svg
from seqloom.reporting.html.elements import Markup, element, visible
from seqloom.reporting.number_format import finite

HALF, WHOLE = 478, 1004  # widths of a page
SMALLEST, LARGEST = 13, 22  # cells: smaller ones would have no room for their labels
LONGEST = 14  # columns of a label
READABLE = 0.75  # of its own size: below, a narrow window scrolls


def heatmap(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[Any]], *, what: str, room: float = HALF
) -> Markup:
    """A heat map; darkest is the largest value. Its cells are as large as `room`, a width, allows."""
    cells = [[finite(value) for value in row] for row in values]
    highest = max((value for row in cells for value in row if value is not None), default=0.0)
    if not highest > 0:
        return empty(what)
    longest = max(map(length, columns))
    left = math.ceil(12 + max(map(length, rows)))
    size = min(max(math.floor((room - left - 4) / len(columns)), SMALLEST), LARGEST)
    fits = size - 3  # longer ones would run into each other
    top = math.ceil(10 + longest) if longest > fits else 22
    places = (left + size * (j + 0.5) for j in range(len(columns)))
    parts = [_above(token, x, top - 6, length(token) > fits) for token, x in zip(columns, places, strict=True)]
    for i, (token, row) in enumerate(zip(rows, cells, strict=True)):
        y = top + size * i
        parts.append(_token(token, x=left - 6, y=y + size / 2 + 4, text_anchor="end"))
        for j, value in enumerate(row):
            if value is not None and value >= 0.005 * highest:
                title = element("title", f"{visible(token)} · {visible(columns[j])}: {value:g}")
                place = {"x": left + size * j + 0.5, "y": y + 0.5, "width": size - 1, "height": size - 1}
                parts.append(element("rect", title, **place, fill_opacity=round(0.06 + 0.94 * value / highest, 3)))
    wide, high = size * len(columns), size * len(rows)
    frame = element("rect", x=left, y=top, width=wide, height=high, class_="frame")
    width, height = left + wide + 4, top + high + 4
    sizes = {"width": width, "height": height, "class_": "own", "style": f"min-width: {round(READABLE * width)}px"}
    return svg(width, height, what, frame, element("g", *parts, class_="heat"), **sizes)


def length(token: str) -> float:
    """About how many units a label takes, rather too many than too few: capitals are wide, and fonts differ."""
    return sum(_wide(character) for character in cropped(visible(token), LONGEST))


def _wide(character: str) -> float:
    columns = width_of(character)
    if columns != 1:
        return 12.5 * columns / 2
    return 12.0 if character in "MWmw@%…" else 9.4 if character.isupper() else 7.2


def _above(token: str, x: float, y: float, turned: bool) -> Markup:
    """The label of a column, in its middle or turned upwards."""
    if not turned:
        return _token(token, x=x, y=y, text_anchor="middle")
    return _token(token, x=x + 4, y=y, transform=f"rotate(-90 {x + 4:g} {y:g})")


def _token(token: str, **place: Any) -> Markup:
    short_form = cropped(visible(token), LONGEST)
    title = element("title", token) if short_form != token else ""
    return element("text", short_form, title, class_="token", **place)
