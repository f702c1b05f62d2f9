"""A chart of a race's results: for every work, how many times as fast as each peer we are.

    python benchmarks/race/chart.py benchmarks/results/today.md benchmarks/results/yesterday.md -o docs/race-cpu.svg

Drawn from the tables "Everybody" of the files, the newest first, so that the chart cannot say anything else than the
results do; ratios below 1 stand to the left of the line.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.errors import SeqloomError
from seqloom.files import write_atomic
from seqloom.reporting.charts.charts import Axis
from seqloom.reporting.html.elements import Markup, element, join

WIDTH, LEFT, RIGHT, ROW = 720, 190, 60, 19
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333; } .work { font-weight: 600; } .grid { stroke: #8884; }
.one { stroke: #555; stroke-width: 1.5; } .faster { fill: #2a7f62; } .slower { fill: #b5482f; }
.spread { stroke: #333; } @media (prefers-color-scheme: dark) { text { fill: #ddd; } .one, .spread { stroke: #ccc; }
.faster { fill: #4fb893; } .slower { fill: #e0775f; } }
"""


class Beside(NamedTuple):
    """One peer at one work: how many times as fast we are, and the rounds' spread of it."""

    work: str
    who: str
    ratio: float
    low: float
    high: float


def read(text: str, file: str = "results") -> list[Beside]:
    """The rows of tables with a column `seqloom ÷ who`; those of absent peers have no ratio and are left out. Of a work
    that was raced several times, those of the first table that has it: the newest run stands first."""
    found: list[Beside] = []
    names: list[str] = []  # of the columns, inside such a table
    known: set[str] = set()  # works of the tables before
    for line in text.splitlines():
        if "| seqloom ÷ who |" in line:
            names, known = cells(line), {row.work for row in found}
        elif not line.startswith("|"):
            names = []
        row = dict(zip(names, cells(line), strict=False))
        if not re.fullmatch(r"[\d.]+", row.get("seqloom ÷ who", "")) or row["who"].startswith("seqloom"):
            continue
        if row["work"] not in known:
            low, high = row["round by round"].split("–")
            found.append(Beside(row["work"], row["who"], float(row["seqloom ÷ who"]), float(low), float(high)))
    if not found and "| seqloom ÷ who |" not in text:
        raise SeqloomError(f"{file}: has no table with a column 'seqloom ÷ who'; benchmarks/race/run.py writes one")
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def drawn(rows: Sequence[Beside]) -> Markup:
    """Bars from the line at 1, on a logarithmic axis: twice as fast is as long as half as fast."""
    if not rows:
        raise SeqloomError("no peer ran beside us: there is nothing to draw")
    low, high = min(0.5, *(row.low for row in rows)) / 1.1, max(2.0, *(row.high for row in rows)) * 1.1
    across = Axis(low, high, LEFT, WIDTH - RIGHT, log=True)
    parts, y = [], 24
    for work in dict.fromkeys(row.work for row in rows):
        parts.append(element("text", work, x=8, y=y, class_="work"))
        y += 8
        for row in (row for row in rows if row.work == work):
            parts.append(_bar(row, across, y))
            y += ROW
        y += 24
    ticks = [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high]
    grid = [_tick(tick, across, y - 16) for tick in ticks]
    style = element("style", STYLE)
    label = "how many times as fast as each peer seqloom is; to the left of 1 it is slower"
    size = {"width": WIDTH, "height": y + 18, "viewBox": f"0 0 {WIDTH} {y + 18}"}
    said = element("text", label, x=8, y=y + 12)
    return element("svg", style, *grid, *parts, said, xmlns="http://www.w3.org/2000/svg", role="img", **size)


def _bar(row: Beside, across: Axis, y: float) -> Markup:
    one, end = across.at(1.0), across.at(row.ratio)
    middle, kind = y + 7, "faster" if row.ratio >= 1 else "slower"
    bar = {"x": min(one, end), "y": y, "width": round(abs(end - one), 2), "height": 14}
    low, high = across.at(row.low), across.at(row.high)
    right = max(one, end, high) + 6
    return join(
        element("text", row.who, x=LEFT - 8, y=y + 11, text_anchor="end"),
        element("rect", **bar, class_=kind),
        element("line", x1=low, x2=high, y1=middle, y2=middle, class_="spread"),
        element("text", f"{row.ratio:.2f} ×", x=round(right, 2), y=y + 11),
    )


def _tick(tick: float, across: Axis, bottom: float) -> Markup:
    x = across.at(tick)
    line = element("line", x1=x, x2=x, y1=28, y2=bottom, class_="one" if tick == 1 else "grid")
    return join(line, element("text", f"{tick:g}", x=x, y=bottom + 12, text_anchor="middle"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "results", type=Path, nargs="+", help="files that benchmarks/race/run.py wrote, the newest first"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="SVG file")
    args = parser.parse_args()
    try:
        texts = "\n".join(file.read_text(encoding="utf-8") for file in args.results)
        chart = drawn(read(texts, ", ".join(map(str, args.results))))
        write_atomic(args.output, str(chart) + "\n")
    except SeqloomError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
