"""What a tagger's evaluation found beyond what every report shows: tags, unknown words, errors in their context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits, finite, whole
from seqloom.reporting.run_facts import Record


def sections(record: Record) -> list[Markup]:
    """Those that there is something to say in."""
    title = "Types of spans" if record.get("spans") else "Tags"
    return [
        section(title, kinds(record)),
        section("Known and unknown words", words(record)),
        section("Errors in their context", contexts(record)),
    ]


def kinds(record: Record) -> Markup:
    """Precision, recall and F1 of each, the commonest first."""
    found = sorted(record.get("kinds") or [], key=lambda one: -one.get("wanted", 0))
    if not found:
        return Markup("")
    scores = ("precision", "recall", "f1")
    rows = [
        [user(one["name"]), *(digits(one.get(name)) for name in scores), whole(one["wanted"]), whole(one["written"])]
        for one in found
    ]
    return table(["", "precision %", "recall %", "F1 %", "wanted", "written"], rows, numeric=range(1, 6))


def words(record: Record) -> Markup:
    """How much harder words are that were not in the training data."""
    rows = [
        [name, digits(found.get("accuracy")), _spread(found), whole(found.get("words"))]
        for name, key in (("in the training data", "known_words"), ("not in the training data", "unknown_words"))
        if (found := record.get(key)) and found.get("words")
    ]
    return table(["words", "tags right %", "95 % interval", "words"], rows, numeric=(1, 2, 3)) if rows else Markup("")


def _spread(found: Mapping[str, Any]) -> str:
    low, high = (found.get("interval") or (None, None))[:2]
    return "" if finite(low) is None or finite(high) is None else f"{digits(low)} … {digits(high)}"


def contexts(record: Record) -> Markup:
    """The first wrong tag of some sentences, those first of which the model was surest."""
    found = record.get("contexts") or []
    if not found:
        return Markup("")
    told = element("p", "The first wrong tag of each sentence, the surest first. Words never seen are marked *.")
    rows = [[_place(one), user(one["wanted"]), user(one["written"]), digits(one.get("confidence"))] for one in found]
    return join(told, table(["", "wanted", "written", "confidence"], rows, numeric=(3,)))


def _place(one: Mapping[str, Any]) -> Markup:
    star = "*" if one.get("unknown") else ""
    before, after = " ".join(one.get("before") or []), " ".join(one.get("after") or [])
    parts = [user(before) if before else "", element("strong", user(one["word"]), star), user(after) if after else ""]
    return element("span", *(part for each in parts if each for part in (each, " ")))
