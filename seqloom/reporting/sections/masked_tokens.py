"""What an evaluation of pretraining adds: predictions for masked tokens, and words with similar vectors."""

from __future__ import annotations

from typing import Any

from seqloom.language import _
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits
from seqloom.reporting.run_facts import Record


def sections(record: Record) -> list[Markup]:
    """Those that the record has data for."""
    return [section("Masked tokens", masks(record)), section("Similar words", similar(record))]


def masks(record: Record) -> Markup:
    """Some texts with a gap for each masked token, and the predictions for it."""
    rows = [
        [user(_around(shown["tokens"], place)), user(shown["tokens"][place]), _predictions(predictions)]
        for shown in record.get("masks") or []
        for place, predictions in shown["guesses"][:2]
    ]
    return table([_("text"), _("masked"), _("predictions")], rows) if rows else Markup("")


def _around(tokens: list[str], place: int, reach: int = 8) -> str:
    """The tokens on both sides of a masked one."""
    before, after = tokens[max(place - reach, 0) : place], tokens[place + 1 : place + 1 + reach]
    return " ".join([*before, "▁▁", *after])


def _predictions(predictions: list[Any]) -> Markup:
    return join(*(element("span", user(token), f" {digits(100 * p, 0)} % ", class_="key") for token, p in predictions))


def similar(record: Record) -> Markup:
    """The most frequent words, and the words whose vectors have the largest cosine with theirs."""
    rows = [
        [
            user(word),
            join(*(element("span", user(other), f" {digits(cosine)} ", class_="key") for other, cosine in near)),
        ]
        for word, near in record.get("alike") or []
    ]
    return table([_("word"), _("similar words, with cosine")], rows) if rows else Markup("")
