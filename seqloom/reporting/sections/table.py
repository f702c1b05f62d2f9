"""What an evaluation of table rows found: which columns count, the weights of a linear model, guessed against true."""

from __future__ import annotations

from typing import Any

from seqloom.plural import counted
from seqloom.reporting.charts.charts import Bar, bars, scatter
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import folded, section, table
from seqloom.reporting.number_format import short, whole
from seqloom.reporting.run_facts import Record

COLUMNS = 30  # bars that can still be read
LOSSES = {"accuracy": "accuracy lost, %", "r2": "R² lost"}


def sections(record: Record) -> list[Markup]:
    """Drawn from what the record has; nothing for a task that has none of it."""
    drawn = [importance(record), guesses(record)]
    return [
        section("What it looks at", element("div", *drawn, class_="two") if any(drawn) else ""),
        section("Weights", weights(record)),
    ]


def columns(data: Record) -> Markup:
    """What each column of the training rows is like, from a run's data.json."""
    found = [*(data.get("columns") or []), *([data["target"]] if data.get("target") else [])]
    if not data.get("columns"):
        return Markup("")
    rows = [[user(one["name"]), one["kind"], *_facts(one)] for one in found]
    return table(
        ["column, the target last", "kind", "missing", "mean", "deviation", "values"], rows, numeric=range(2, 6)
    )


def _facts(one: Any) -> list[str]:
    return [whole(one.get("missing")), *map(short, (one.get("mean"), one.get("deviation"))), whole(one.get("values"))]


def importance(record: Record) -> Markup:
    """How much worse the answers get when the fields of one column are dealt out anew (Breiman 2001)."""
    found = record.get("importance") or {}
    columns = (found.get("columns") or [])[:COLUMNS]
    if not columns:
        return Markup("")
    rows = [Bar(one["column"], one["fall"], _whiskers(one)) for one in columns]
    note = (
        f"{counted(found.get('rows'), 'held-out rows')}, the fields of one column dealt out anew among them, five "
        "times; a column of which another tells the same counts for little"
    )
    return figure("Columns that count", bars(rows, unit=LOSSES.get(found.get("metric", ""), "lost")), note)


def _whiskers(one: Any) -> tuple[float, float]:
    return one["fall"] - one["deviation"], one["fall"] + one["deviation"]


def guesses(record: Record) -> Markup:
    """Each held-out row as a point: on the line it is guessed exactly."""
    found = record.get("scatter") or {}
    if not found.get("points"):
        return Markup("")
    drawn = scatter(found["points"], x=f"{found['target']}, true", y="guessed")
    return figure("Guessed against true", drawn, "on the line: exact")


def weights(record: Record) -> Markup:
    """What a linear model adds for each value; it is all there is to know of it."""
    found = record.get("weights") or {}
    parts = [_output(one) for one in found.get("outputs") or []]
    if not parts:
        return Markup("")
    texts = " What the columns of text add is not among them." if found.get("texts") else ""
    told = (
        "The model is linear: its answer is the sum of these. A weight is what one deviation of a number, or a yes, or "
        f"being of a category adds; per unit, what one more of the number as it stands in the table adds.{texts}"
    )
    return join(element("p", told), *parts)


def _output(one: Any) -> Markup:
    rows = [[user(value), _signed(weight), _signed(unit)] for value, weight, unit in one["values"]]
    listed = table(["value", "weight", "per unit"], [*rows, ["constant", "", short(one["bias"])]], numeric=(1, 2))
    return folded(join("For ", user(one["output"])), listed, opened=len(rows) <= COLUMNS)


def _signed(value: Any) -> str:
    return f"+{short(value)}" if value > 0 else short(value)
