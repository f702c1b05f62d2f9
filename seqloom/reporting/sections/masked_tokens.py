"""What was learned from plain text: tokens guessed behind a mask, and words whose vectors are near."""

from __future__ import annotations

from typing import Any

from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import section, table
from seqloom.reporting.number_format import digits
from seqloom.reporting.run_facts import Record


def sections(record: Record) -> list[Markup]:
    """Drawn from what the record has; nothing for a task that has none of it."""
    return [section("Hidden tokens", masks(record)), section("Words that are alike", alike(record))]


def masks(record: Record) -> Markup:
    """Some texts with the hidden tokens marked, and what was guessed for each."""
    rows = [
        [user(_around(shown["tokens"], place)), user(shown["tokens"][place]), _guesses(guesses)]
        for shown in record.get("masks") or []
        for place, guesses in shown["guesses"][:2]
    ]
    return table(["text", "hidden", "guessed"], rows) if rows else Markup("")


def _around(tokens: list[str], place: int, reach: int = 8) -> str:
    """The tokens on both sides of a hidden one."""
    before, after = tokens[max(place - reach, 0) : place], tokens[place + 1 : place + 1 + reach]
    return " ".join([*before, "▁▁", *after])


def _guesses(guesses: list[Any]) -> Markup:
    return join(*(element("span", user(token), f" {digits(100 * p, 0)} % ", class_="key") for token, p in guesses))


def alike(record: Record) -> Markup:
    """The commonest words, and which vectors have the largest cosine with theirs."""
    rows = [
        [
            user(word),
            join(*(element("span", user(other), f" {digits(cosine)} ", class_="key") for other, cosine in near)),
        ]
        for word, near in record.get("alike") or []
    ]
    return table(["word", "alike, with their cosines"], rows) if rows else Markup("")
