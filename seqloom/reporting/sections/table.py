"""What an evaluation of table rows adds: feature importance, predictions, the weights of a linear model."""

from __future__ import annotations

from typing import Any

from seqloom.language import _, amount
from seqloom.reporting.charts.charts import Bar, bars, scatter
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, fill, join, user
from seqloom.reporting.html.page import folded, section, table
from seqloom.reporting.number_format import short, whole
from seqloom.reporting.run_facts import Record

COLUMNS = 30  # bars that can still be read
LOSSES = {"accuracy": "decrease of accuracy, %", "r2": "decrease of R²"}


def sections(record: Record) -> list[Markup]:
    """Those that the record has data for."""
    drawn = [importance(record), predictions(record)]
    return [
        section("Importance and predictions", element("div", *drawn, class_="two") if any(drawn) else ""),
        section("Weights", weights(record)),
    ]


def columns(data: Record) -> Markup:
    """What each column of the training rows is like, from a run's data.json."""
    found = [*(data.get("columns") or []), *([data["target"]] if data.get("target") else [])]
    if not data.get("columns"):
        return Markup("")
    numbers = [(whole, "missing"), (short, "mean"), (short, "deviation"), (whole, "values")]
    rows = [[user(one["name"]), one["kind"], *(text(one.get(name)) for text, name in numbers)] for one in found]
    head = [_("column, the target last"), _("kind"), _("missing"), _("mean"), _("standard deviation"), _("values")]
    return table(head, rows, numeric=range(2, 6))


def importance(record: Record) -> Markup:
    """Permutation importance: how much worse the predictions get when one column is shuffled (Breiman 2001)."""
    found = record.get("importance") or {}
    columns = (found.get("columns") or [])[:COLUMNS]
    if not columns:
        return Markup("")
    rows = [
        Bar(one["column"], one["fall"], (one["fall"] - one["deviation"], one["fall"] + one["deviation"]))
        for one in columns
    ]
    note = _(
        "{rows}, one column shuffled among them, five times; a column that another one duplicates gets little",
        rows=amount(found.get("rows"), "held-out rows"),
    )
    unit = _(LOSSES.get(found.get("metric", ""), "decrease of the score"))
    return figure(_("Importance of columns"), bars(rows, unit=unit), note)


def predictions(record: Record) -> Markup:
    """Each held-out row as a point; on the line, prediction and true value are equal."""
    found = record.get("scatter") or {}
    if not found.get("points"):
        return Markup("")
    drawn = scatter(found["points"], x=_("{target}, true", target=found["target"]), y=_("predicted"))
    return figure(_("Predicted against true"), drawn, _("on the line: exact"))


def weights(record: Record) -> Markup:
    """All weights of a linear model."""
    found = record.get("weights") or {}
    parts = [_output(one) for one in found.get("outputs") or []]
    if not parts:
        return Markup("")
    text = _(
        "The model is linear: its output is the sum of these. A weight is what one standard deviation of a number, a "
        "yes, or a category adds; per unit, what one more of the number as it stands in the table adds."
    )
    if found.get("texts"):
        text += _(" ") + _("The weights of text columns are not listed.")
    return join(element("p", text), *parts)


def _output(one: Any) -> Markup:
    rows = [[user(value), _signed(weight), _signed(unit)] for value, weight, unit in one["values"]]
    listed = table(
        [_("value"), _("weight"), _("per unit")], [*rows, [_("constant"), "", short(one["bias"])]], numeric=(1, 2)
    )
    return folded(fill("For {output}", output=user(one["output"])), listed, opened=len(rows) <= COLUMNS)


def _signed(value: Any) -> str:
    return f"+{short(value)}" if value > 0 else short(value)
