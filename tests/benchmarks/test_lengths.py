"""Scores by length: groups, and a score for each that is that of its own sentences."""

from __future__ import annotations

import lengths
from lengths import by_length, groups, table


def test_groups_are_of_nearly_equal_number_and_never_part_a_length():
    found = groups([3, 1, 2, 2, 2, 9, 8, 7], 3)
    assert [(group.shortest, group.longest) for group in found] == [(1, 2), (3, 8), (9, 9)]
    assert sorted(place for group in found for place in group.places) == list(range(8))
    assert groups([5, 5, 5], 3) == [(5, 5, [0, 1, 2])]


def test_long_ones_that_are_wrong_show(monkeypatch):
    pairs = [("a b", ("x y",)), ("a b c", ("x y z",)), ("a b c d e", ("v w x y z",))]
    monkeypatch.setattr(lengths, "examples", lambda name: pairs)
    told = {"test": ["any:test"], "fold": False, "evaluate": {"metrics": ["per"]}}
    found = by_length({**told, "predictions": ["x y", "x y z", "v w"]}, 3)
    assert found == {"2–2": 0.0, "3–3": 0.0, "5–5": 60.0}
    assert "| it | 0.00 | 0.00 | 60.00 |" in table({"it": found})
