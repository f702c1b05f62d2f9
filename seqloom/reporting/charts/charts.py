"""Charts as SVG, by hand: lines, points, bars. Colours are classes, so that the page's style sheet decides them.

Every chart takes what it is given: gaps where a value is missing or not finite, and a word where there is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqloom.inspection.attention_maps import columns as width_of
from seqloom.language import _
from seqloom.reporting.html.elements import Markup, element, join
from seqloom.reporting.number_format import finite, short, tick_labels, whole

WIDTH, HEIGHT = 330, 210
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 26, 38
MOST = 400  # points of a line: more cannot be seen, and would make the page heavy
COLOURS = 8
Point = tuple[Any, Any]


@dataclass(frozen=True)
class Series:
    """A line: points in the order of x, a colour by its number, and perhaps a point to ring."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    mark: Point | None = None
    dots: bool = False  # few points, each worth seeing


def colour_of(number: int) -> str:
    """The classes of the n-th colour; when all are used up, the same again, dashed."""
    return f"s{number % COLOURS}" + (" again" if number >= COLOURS else "")


@dataclass(frozen=True)
class Axis:
    """From values to places: `at(value)` lies between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (self.end - self.start) * (value - low) / (high - low), 2)

    def ticks(self) -> list[tuple[float, str]]:
        """Where a number stands, and as what."""
        found = _decades(self.low, self.high) if self.log else round_ticks(self.low, self.high)
        return list(zip(found, map(short, found) if self.log else tick_labels(found), strict=True))


def lines(
    series: Sequence[Series], *, x: str, y: str, zero: bool = False, log: bool = False, until: float | None = None
) -> Markup:
    """A line chart. `zero`: the y axis begins at 0. `log`: it may be logarithmic where values span two decades.

    `until`: the x axis reaches from 0 to there, so that all charts of a run have the same.
    """
    drawn = [(one, thinned(one.points)) for one in series]
    found = [(px, py) for _, points in drawn for px, py in points if py is not None]
    if not found:
        return empty(_title(x, y))
    values = [py for _, py in found]
    log = log and min(values) > 0 and max(values) > 100 * min(values)
    up = _axis(values, HEIGHT - BOTTOM, TOP, zero=zero, log=log)
    ends = [] if until is None else [0.0, until]
    across = _axis([*(px for px, _ in found), *ends], _left(up), WIDTH - RIGHT)
    body = [_line(one, points, across, up) for one, points in drawn]
    names = _(", ").join(one.name for one, points in drawn if points)
    y_label = _("{axis} (log scale)", axis=y) if log else y
    return svg(WIDTH, HEIGHT, f"{_title(x, y)}{_(': ')}{names}", _frame(across, up), *body, _labels(x, y_label))


def scatter(points: Sequence[Point], *, x: str, y: str) -> Markup:
    """Points on equal axes, and the line on which both values are the same."""
    known = [(px, py) for px, py in points if finite(px) is not None and finite(py) is not None]
    if not known:
        return empty(_title(x, y))
    values = [value for point in known for value in point]
    up = _axis(values, HEIGHT - BOTTOM, TOP)
    across = _axis(values, _left(up), WIDTH - RIGHT)
    ends = [(across.at(end), up.at(end)) for end in (min(values), max(values))]
    same = element("path", d="".join(f"{sign}{px:g} {py:g}" for sign, (px, py) in zip("ML", ends, strict=True)))
    dots = [element("circle", cx=across.at(px), cy=up.at(py), r=1.6, class_="dot s0") for px, py in known]
    line = element("g", same, class_="line s1")
    return svg(WIDTH, HEIGHT, _title(x, y), _frame(across, up), line, *dots, _labels(x, y))


def _title(x: str, y: str) -> str:
    return _("{y} by {x}", x=x, y=y)


def thinned(points: Sequence[Point], most: int = MOST) -> list[tuple[float, float | None]]:
    """At most `most` points, each the mean of its neighbours; y is None where there was no finite one."""
    known = [(finite(px), finite(py)) for px, py in points]
    # What is next to infinite has no place either: differences would overflow.
    kept = [(px, None if py is None or abs(py) > 1e300 else py) for px, py in known if px is not None]
    size = math.ceil(len(kept) / most)
    if size <= 1:
        return kept
    groups = [kept[i : i + size] for i in range(0, len(kept), size)]
    return [(_mean([px for px, _ in one]) or 0.0, _mean([py for _, py in one if py is not None])) for one in groups]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _axis(values: Sequence[float], start: float, end: float, *, zero: bool = False, log: bool = False) -> Axis:
    """Around the values, upwards to round numbers; a single value gets room on both sides. Nothing is below 0 unless a
    value is, and nothing above 100 where all is right: of shares and losses that would be a lie."""
    low, high = min(values), max(values)
    if log:
        return Axis(low / 1.1, high * 1.1, start, end, True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(high) / 2 or 1.0
        low, high = low if zero else _below(low, room), high if high == 100 else high + room
    return Axis(*(_widened_to_ticks(low, high) if start > end else (low, high)), start, end)  # upwards


def _widened_to_ticks(low: float, high: float) -> tuple[float, float]:
    """A little farther, to round numbers: an axis that began at a value of its own would hide where it begins."""
    ticks = round_ticks(low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0.0
    if not step > 0:  # next to nothing, where numbers are rounded
        return low, high
    first = ticks[0] - step if ticks[0] > low else ticks[0]
    last = ticks[-1] + step if ticks[-1] < high else ticks[-1]
    return min(low, max(first, 0.0) if low >= 0 else first), max(high, last)


def _below(low: float, room: float) -> float:
    return max(low - room, 0.0) if low >= 0 else low - room


def _left(up: Axis) -> float:
    """Where the x axis begins: beside the longest number of the y axis."""
    return max(LEFT, 12 + 6.6 * max((len(label) for _tick, label in up.ticks()), default=0))


def round_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between low and high: steps of 1, 2 or 5 times a power of ten, at most `most` of them or so."""
    rough = (high - low) / most
    if not rough > 0 or not math.isfinite(rough):
        return [low]
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    found = [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    every = math.ceil(len(found) / 5)
    return found[::every]


def _frame(across: Axis, up: Axis) -> Markup:
    """Lines at the y ticks, numbers at both axes."""
    parts = []
    for tick, label in up.ticks():
        y = up.at(tick)
        parts.append(element("line", x1=across.start, x2=across.end, y1=y, y2=y, class_="grid"))
        parts.append(element("text", label, x=across.start - 6, y=y + 3.5, text_anchor="end"))
    floor = up.start
    parts.append(element("line", x1=across.start, x2=across.end, y1=floor, y2=floor, class_="axis"))
    for tick, label in across.ticks():
        x = across.at(tick)
        parts.append(element("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis"))
        within = min(x, round(WIDTH - 3.3 * len(label), 2))  # a long number at the end would be cut
        parts.append(element("text", label, x=within, y=floor + 17, text_anchor="middle"))
    return join(*parts)


def _labels(x: str, y: str) -> Markup:
    return join(
        element("text", x, x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end", class_="label"),
        element("text", y, x=2, y=11, class_="label"),
    )


def _line(one: Series, points: list[tuple[float, float | None]], across: Axis, up: Axis) -> Markup:
    """A path that is lifted over gaps; a point between two gaps is a dot, for a path of one point shows nothing."""
    path, parts, colour = "", [], colour_of(one.colour)
    known = [None, *(None if y is None else (across.at(x), up.at(y)) for x, y in points), None]
    for before, here, after in zip(known, known[1:], known[2:], strict=False):
        if here is None:
            continue
        path += f"{'M' if before is None else 'L'}{here[0]:g} {here[1]:g}"
        if one.dots or (before is None and after is None):
            parts.append(element("circle", cx=here[0], cy=here[1], r=2.2, class_=f"dot {colour}"))
    parts.insert(0, element("path", d=path or None, class_=f"line {colour}"))
    if one.mark is not None and finite(one.mark[0]) is not None and finite(one.mark[1]) is not None:
        place = {"cx": across.at(one.mark[0]), "cy": up.at(one.mark[1])}
        parts.append(element("circle", **place, r=5, class_=f"ring {colour}"))
    return join(*parts)


@dataclass(frozen=True)
class Bar:
    label: str
    value: Any
    interval: tuple[Any, Any] | None = None
    note: str = ""
    colour: int = 0


def bars(rows: Sequence[Bar], *, unit: str, wide: int = 84) -> Markup:
    """Horizontal bars from 0, with whiskers; labels stand in the left `wide` units, values and notes at the right."""
    ends = [finite(end) for row in rows for end in (row.value, *(row.interval or ()))]
    highest = max((end for end in ends if end is not None), default=None)
    if highest is None:
        return empty(unit)
    height, right = 26, WIDTH - 100
    across = Axis(0.0, max(highest, 1e-9), wide, right)
    parts = [_bar(row, 4 + height * n, across) for n, row in enumerate(rows)]
    bottom = 6 + height * len(rows)
    parts.append(element("line", x1=wide, x2=wide, y1=2, y2=bottom, class_="axis"))
    parts.append(element("text", unit, x=wide, y=bottom + 13, class_="label"))
    return svg(WIDTH, bottom + 18, f"{unit}{_(': ')}{_(', ').join(row.label for row in rows)}", *parts)


def _bar(row: Bar, top: float, across: Axis) -> Markup:
    value, middle = finite(row.value), top + 11
    label = element("text", cropped(row.label, 12), x=across.start - 7, y=middle + 4, text_anchor="end", class_="token")
    if value is None:
        return join(label, element("text", "–", x=across.start + 5, y=middle + 4))
    end = across.at(max(value, 0.0))
    parts = [label, element("rect", x=across.start, y=top + 3, width=round(end - across.start, 2), height=16)]
    parts[1] = element("g", parts[1], class_=f"bar {colour_of(row.colour)}")
    low, high = (finite(row.interval[0]), finite(row.interval[1])) if row.interval else (None, None)
    if low is not None and high is not None:
        x1, x2 = across.at(max(low, 0.0)), across.at(max(high, 0.0))
        path = f"M{x1:g} {middle:g}H{x2:g}M{x1:g} {middle - 3:g}v6M{x2:g} {middle - 3:g}v6"
        parts.append(element("path", d=path, class_="whisker"))
        end = max(end, x2)
    number = f"{value:#.3g}".rstrip(".") if value < 1000 else whole(value)
    parts.append(element("text", number, x=end + 7, y=middle + 4, class_="value"))
    parts.append(element("text", row.note, x=WIDTH - 2, y=middle + 4, text_anchor="end", class_="label"))
    return join(*parts)


def cropped(text: str, most: int) -> str:
    """The text, or as much of it as takes `most` columns, with an ellipsis."""
    if width_of(text) <= most:
        return text
    while width_of(text) > most - 1:
        text = text[:-1]
    return text + "…"


def empty(label: str) -> Markup:
    """What stands in place of a chart that has no data."""
    return element("p", _("Nothing to draw: {what}.", what=label), class_="nothing")


def svg(width: float, height: float, label: str, /, *parts: Markup, **sizes: Any) -> Markup:
    """A picture of so many units; as wide as the page has room for, unless `sizes` say otherwise."""
    return element(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        **(sizes or {"class_": "chart"}),
    )
