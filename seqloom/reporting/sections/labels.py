"""What an evaluation of labels or numbers adds: by label, confusion, calibration, by length, attention to words."""

from __future__ import annotations

from typing import Any

from seqloom.language import _
from seqloom.reporting.charts.charts import Bar, Series, bars, lines
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.charts.heatmap import WHOLE, heatmap
from seqloom.reporting.html.elements import Markup, element, fill, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits, finite, whole
from seqloom.reporting.run_facts import Record
from seqloom.reporting.sections.confusion_matrix import label_confusion
from seqloom.reporting.sections.evaluation import length_range


def sections(record: Record) -> list[Markup]:
    """Those that the record has data for."""
    drawn = [calibration(record), by_length(record)]
    return [
        section("By label", by_label(record)),
        section("Confusion of labels", label_confusion(record)),
        section("Confidence, and errors by length", element("div", *drawn, class_="two") if any(drawn) else ""),
        section("Attention to words", attention(record)),
    ]


def by_label(record: Record) -> Markup:
    """Precision, recall and F1 of every label."""
    found = record.get("by_label") or []
    shares, counts = ("precision", "recall", "f1"), ("wanted", "guessed")
    rows = [
        [user(one["label"]), *(digits(one.get(name)) for name in shares), *(whole(one.get(name)) for name in counts)]
        for one in found
    ]
    head = [_("label"), _("precision, %"), _("recall, %"), "F1, %", _("reference"), _("predicted")]
    return table(head, rows, numeric=range(1, 6)) if rows else Markup("")


def calibration(record: Record) -> Markup:
    """Accuracy by confidence: on the diagonal both are equal."""
    bins = record.get("calibration") or []
    if not bins:
        return Markup("")
    points = [(100 * one["confidence"], 100 * one["accuracy"]) for one in bins]
    equal = Series(_("confidence equals accuracy"), [(0, 0), (100, 100)], 1)
    series = [Series(_("accuracy"), points, 0, dots=True), equal]
    error = (record.get("metrics") or {}).get("calibration_error")
    note = ""
    if finite(error) is not None:
        text = digits(error)
        note = _("expected calibration error {error} %; straight line: confidence equals accuracy", error=text)
    return figure(_("Calibration"), lines(series, x=_("confidence, %"), y=_("accuracy, %"), zero=True), note)


def by_length(record: Record) -> Markup:
    found = record.get("error_by_length") or []
    if not found:
        return Markup("")
    unit = _("error rate, %") if record.get("by_label") else _("mean absolute error")
    rows = [Bar(length_range(one), one.get("error"), _interval(one), f"n = {whole(one['count'])}") for one in found]
    return figure(_("By length of the text"), bars(rows, unit=unit), _("tokens of the text"))


def attention(record: Record) -> Markup:
    """The weight of each word in attention pooling, for some examples."""
    return join(
        *(
            figure(
                "",
                element("div", _words(one), class_="scroll"),
                fill(
                    "reference {reference}, predicted {prediction}",
                    reference=user(one["wanted"]),
                    prediction=user(one["prediction"]),
                ),
            )
            for one in record.get("looked") or []
        )
    )


def _words(one: Any) -> Markup:
    return heatmap([one["prediction"] or "∅"], one["tokens"], [one["weights"]], what=_("weights of words"), room=WHOLE)


def _interval(one: Any) -> tuple[Any, Any] | None:
    found = one.get("interval")
    return (found[0], found[1]) if found else None
