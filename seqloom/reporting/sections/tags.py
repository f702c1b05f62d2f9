"""What a tagger's evaluation adds: scores by tag or span type, unknown words, errors in context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqloom.language import _
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits, finite, whole
from seqloom.reporting.run_facts import Record

KNOWN = {"in the training data": "known_words", "not in the training data": "unknown_words"}


def sections(record: Record) -> list[Markup]:
    """Those that the record has data for."""
    return [
        section("Types of spans", kinds(record)) if record.get("spans") else section("Tags", kinds(record)),
        section("Known and unknown words", words(record)),
        section("Errors in context", contexts(record)),
    ]


def kinds(record: Record) -> Markup:
    """Precision, recall and F1 of each, the most frequent first."""
    found = sorted(record.get("kinds") or [], key=lambda one: -one.get("wanted", 0))
    if not found:
        return Markup("")
    scores = ("precision", "recall", "f1")
    rows = [
        [user(one["name"]), *(digits(one.get(name)) for name in scores), whole(one["wanted"]), whole(one["written"])]
        for one in found
    ]
    return table(
        ["", _("precision, %"), _("recall, %"), "F1, %", _("reference"), _("predicted")], rows, numeric=range(1, 6)
    )


def words(record: Record) -> Markup:
    """Accuracy on words inside and outside the training data."""
    head = [_("words"), _("accuracy, %"), _("95 % interval"), _("count")]
    rows = [
        [_(name), digits(found.get("accuracy")), _spread(found), whole(found.get("words"))]
        for name, key in KNOWN.items()
        if (found := record.get(key)) and found.get("words")
    ]
    return table(head, rows, numeric=(1, 2, 3)) if rows else Markup("")


def _spread(found: Mapping[str, Any]) -> str:
    low, high = (found.get("interval") or (None, None))[:2]
    return "" if finite(low) is None or finite(high) is None else f"{digits(low)} … {digits(high)}"


def contexts(record: Record) -> Markup:
    """The first wrong tag of some sentences, those with the highest confidence first."""
    found = record.get("contexts") or []
    if not found:
        return Markup("")
    note = _(
        "The first wrong tag of each sentence, the highest confidence first. Words that are not in the "
        "training data are marked *."
    )
    rows = [[_place(one), user(one["wanted"]), user(one["written"]), digits(one.get("confidence"))] for one in found]
    head = ["", _("reference"), _("prediction"), _("confidence")]
    return join(element("p", note), table(head, rows, numeric=(3,)))


def _place(one: Mapping[str, Any]) -> Markup:
    star = "*" if one.get("unknown") else ""
    before, after = " ".join(one.get("before") or []), " ".join(one.get("after") or [])
    parts = [user(before) if before else "", element("strong", user(one["word"]), star), user(after) if after else ""]
    return element("span", *(part for each in parts if each for part in (each, " ")))
