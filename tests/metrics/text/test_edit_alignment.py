"""Alignment: as many unlike pairs as edits, and both sides read back whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics.text.edit_alignment import align, align_plain, closest
from seqloom.metrics.text.error_rates import edit_distance

TOKENS = st.lists(st.sampled_from(["a", "b", "97", "c"]), max_size=9)


@given(TOKENS, TOKENS)
@pytest.mark.parametrize("twin", [align, align_plain])
def test_an_alignment_is_a_shortest_edit(twin, wanted, written):
    pairs = twin(wanted, written)
    assert [left for left, _ in pairs if left is not None] == wanted
    assert [right for _, right in pairs if right is not None] == written
    assert (None, None) not in pairs
    assert sum(left != right for left, right in pairs) == edit_distance(wanted, written)


@pytest.mark.parametrize("twin", [align, align_plain])
def test_by_hand(twin):
    assert twin("kitten", "sitting") == [*zip("kitten", "sittin", strict=True), (None, "g")]
    assert twin("ab", "") == [("a", None), ("b", None)]
    assert twin("", "") == []


def test_the_closest_reference_counts():
    assert closest(["xyz", "abd", "abcd"], "abc") == "abd"
