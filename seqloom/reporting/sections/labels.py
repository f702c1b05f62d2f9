"""What an evaluation of labels or numbers found: by label, confusion, calibration, by length, words that counted."""

from __future__ import annotations

from typing import Any

from seqloom.reporting.charts.charts import Bar, Series, bars, lines
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.charts.heatmap import WHOLE, heat
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits, finite, whole
from seqloom.reporting.run_facts import Record


def sections(record: Record) -> list[Markup]:
    """Drawn from what the record has; nothing for a task that has none of it."""
    looked = [calibration(record), by_length(record)]
    return [
        section("By label", by_label(record)),
        section("Label for label", confusion(record)),
        section("How sure, and where it errs", element("div", *looked, class_="two") if any(looked) else ""),
        section("Words that counted", attention(record)),
    ]


def by_label(record: Record) -> Markup:
    """Precision, recall and F1 of every label."""
    found = record.get("by_label") or []
    shares, counts = ("precision", "recall", "f1"), ("wanted", "guessed")
    rows = [
        [user(one["label"]), *(digits(one.get(name)) for name in shares), *(whole(one.get(name)) for name in counts)]
        for one in found
    ]
    head = ["label", "precision, %", "recall, %", "F1, %", "wanted", "guessed"]
    return table(head, rows, numeric=range(1, 6)) if rows else Markup("")


def confusion(record: Record) -> Markup:
    """Which label was guessed for which: a heat map, and the commonest mistakes."""
    found = record.get("label_confusion") or {}
    labels, counts = found.get("labels") or [], found.get("table") or []
    if not labels:
        return Markup("")
    unknown = f" {whole(found['unknown'])} have a label that the training data lacks." if found.get("unknown") else ""
    told = element("p", f"{whole(found.get('right'))} right, {whole(found.get('wrong'))} taken for another.{unknown}")
    # By the share of a row: else a common label would leave the others pale.
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    drawn = heat(labels, labels, shares, what="labels wanted (rows) and guessed (columns)")
    note = "rows: wanted; columns: guessed; the darker, the larger the share of the row"
    picture = figure("Who is taken for whom", element("div", drawn, class_="scroll"), note)
    rows = [[user(wanted), user(guessed), whole(count)] for wanted, guessed, count in found.get("pairs") or []]
    pairs = table(["wanted", "guessed", "times"], rows[:10], numeric=(2,)) if rows else ""
    return join(told, element("div", element("div", pairs, class_="pairs"), picture, class_="two"))


def calibration(record: Record) -> Markup:
    """How often it is right when it is so sure: on the diagonal, confidence can be taken at its word."""
    bins = record.get("calibration") or []
    if not bins:
        return Markup("")
    seen = [(100 * one["confidence"], 100 * one["accuracy"]) for one in bins]
    series = [Series("right", seen, 0, dots=True), Series("as sure as right", [(0, 0), (100, 100)], 1)]
    error = (record.get("metrics") or {}).get("calibration_error")
    note = (
        f"expected calibration error {digits(error)} %; straight: as sure as right" if finite(error) is not None else ""
    )
    return figure("Calibration", lines(series, x="confidence, %", y="right, %", zero=True), note)


def by_length(record: Record) -> Markup:
    found = record.get("error_by_length") or []
    if not found:
        return Markup("")
    unit = "wrong, %" if record.get("by_label") else "mean absolute error"
    rows = [Bar(_range(one), one.get("error"), _interval(one), f"n = {whole(one['count'])}") for one in found]
    return figure("By length of the text", bars(rows, unit=unit), "tokens of the text")


def attention(record: Record) -> Markup:
    """How much each word counted in the summary, for some examples."""
    return join(
        *(
            figure(
                "",
                element("div", _words(one), class_="scroll"),
                join("wanted ", user(one["wanted"]), ", guessed ", user(one["prediction"])),
            )
            for one in record.get("looked") or []
        )
    )


def _words(one: Any) -> Markup:
    return heat([one["prediction"] or "∅"], one["tokens"], [one["weights"]], what="weights of words", room=WHOLE)


def _range(one: Any) -> str:
    low, high = one["shortest"], one["longest"]
    return f"{low}" if low == high else f"{low} – {high}"


def _interval(one: Any) -> tuple[Any, Any] | None:
    found = one.get("interval")
    return (found[0], found[1]) if found else None
