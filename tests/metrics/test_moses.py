"""Tokens by the rules of Moses: each case worked by hand after its description."""

from __future__ import annotations

import pytest

from seqloom.metrics.moses import moses


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A man's head, isn't it?", "a man 's head , isn 't it ?"),
        ("The boys' dog of the 1990's.", "the boys ' dog of the 1990 's ."),
        ('Er sagt "Hallo" (laut) & geht...', 'er sagt " hallo " ( laut ) & geht ...'),
        ("10,000 T-Shirts,rot,3.5 kg", "10,000 t-shirts , rot , 3.5 kg"),
        ("Past E.S.E. Electronics in the U.S.", "past e.s.e. electronics in the u.s."),
        ("St. Bernard Nr. 5 am 3. Mai.", "st. bernard nr . 5 am 3. mai ."),
        ('Zwei Sätze. "Ja"', 'zwei sätze . " ja "'),
        ("snake_case 50%", "snake _ case 50 %"),
        ("  .  ", "."),
        ("", ""),
    ],
)
def test_tokens(text, tokens):
    assert " ".join(moses(text)) == tokens


def test_cutting_twice_changes_nothing():
    once = " ".join(moses("Two dogs, e.g. 3 (big) ones, ran..."))
    assert " ".join(moses(once)) == once
