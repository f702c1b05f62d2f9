"""Which tags may follow which, and what broken ones become."""

from __future__ import annotations

from itertools import product

import pytest

from seqloom.data.encoding.tag_schemes import (
    END_LETTERS,
    detect_scheme,
    is_allowed,
    not_in_scheme,
    repair_tags,
    spans,
    strict_spans,
    suggest_tag,
    violations,
)


@pytest.mark.parametrize(
    ("rows", "scheme"),
    [
        (["NOUN VERB"], None),
        (["O O O"], None),
        (["O B-PER I-PER", "O"], "bio"),
        (["B-PER", "O I-LOC"], "bio"),
        (["O I-PER I-PER B-PER", "I-LOC"], "iob1"),
        (["B-PER E-PER S-LOC"], "bioes"),
        (["B-PER L-PER U-LOC"], "bilou"),
        (["O B-PER NOUN"], None),
        (["B-"], None),
        (["O B-PER-OLD"], "bio"),
        (["B-PER M-PER E-PER S-LOC O"], "bmes"),
        (["B-PER M-PER E-PER W-LOC O"], "bmewo"),
        (["B-PER I-PER O", "B_LOC O"], "bio"),
        (["B-PER I-PER O B-LOC", "S-LOC O"], "bio"),
        (["B-PER E-PER S-PER", "B-LOC I-LOC"], "bioes"),
        (["NOUN VERB NOUN S-NP"], None),
    ],
)
def test_schemes_are_recognised(rows, scheme):
    assert detect_scheme([row.split() for row in rows]) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme", "places"),
    [
        ("B-A I-A O B-B", "bio", []),
        ("I-A O", "bio", [0]),
        ("O I-A I-A", "bio", [1]),
        ("B-A I-B", "bio", [1]),
        ("I-A I-B B-A", "iob1", []),
        ("B-A E-A S-B O", "bioes", []),
        ("B-A O", "bioes", [1]),
        ("E-A", "bioes", [0]),
        ("S-A I-A E-A", "bioes", [1]),
        ("O B-A I-A", "bioes", [2]),
        ("B-A B-A L-A", "bilou", [1]),
        ("B-A M-A E-A S-B O", "bmes", []),
        ("B-A M-A O M-B", "bmes", [2, 3, 3]),
        ("B-A W-A", "bmewo", [1]),
    ],
)
def test_breaks_are_found_at_their_place(tags, scheme, places):
    assert [place for place, _ in violations(tags.split(), scheme)] == places


def test_breaks_say_what_is_wrong():
    assert [reason for _, reason in violations(["I-A", "O", "I-B"], "bio")] == [
        "I-A begins the sentence",
        "I-B after O",
    ]
    assert [reason for _, reason in violations(["B-A"], "bioes")] == ["B-A ends the sentence: its span has no end"]


@pytest.mark.parametrize(
    ("tags", "scheme", "repaired"),
    [
        ("I-A I-A O I-B", "bio", "B-A I-A O B-B"),
        ("B-A I-B", "bio", "B-A B-B"),
        ("I-A I-A B-A I-B", "iob1", "B-A I-A B-A B-B"),
        ("B-A O I-B I-B", "bioes", "S-A O B-B E-B"),
        ("B-A O I-B I-B", "bilou", "U-A O B-B L-B"),
        ("O O", "bio", "O O"),
        ("B-A O M-B M-B", "bmes", "S-A O B-B E-B"),
        ("B-A O M-B M-B", "bmewo", "W-A O B-B E-B"),
        ("B_A I-A", "bio", "B_A B-A"),
    ],
)
def test_repair(tags, scheme, repaired):
    assert repair_tags(tags.split(), scheme) == repaired.split()


@pytest.mark.parametrize(
    ("scheme", "letters"), [("bio", "BI"), *((s, f"B{letters}") for s, letters in END_LETTERS.items())]
)
def test_whatever_is_broken_is_whole_after_repair_and_marks_the_same_spans(scheme, letters):
    every = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "AB")]
    for tags in product(every, repeat=3):
        repaired = repair_tags(tags, scheme)
        assert not list(violations(repaired, scheme)), tags
        assert list(spans(repaired)) == list(spans(tags)) == list(strict_spans(repaired, scheme))
        if not list(violations(tags, scheme)):
            assert tuple(repaired) == tags


def test_tags_of_no_scheme_may_always_follow():
    assert is_allowed("NOUN", "I-A", "bio")
    assert is_allowed("I-A", None, "bio")
    assert not is_allowed("I-A", None, "bioes")


def test_odd_tags_and_what_they_were_meant_to_be():
    assert [tag for tag in ("O", "B-A", "I-A", "E-A", "B_A", "NOUN") if not_in_scheme(tag, "bio")] == [
        "E-A",
        "B_A",
        "NOUN",
    ]
    assert [tag for tag in ("O", "B-A", "M-A", "I-A", "S-A") if not_in_scheme(tag, "bmes")] == ["I-A"]
    known = ["B-LOC", "I-LOC", "O"]
    odd_ones = ("B_LOC", "b-loc", "I LOC", "BLOC", "В-LOC", "О", "0", "o", "B-PER", "LOC", "B-")
    assert [suggest_tag(tag, known) for tag in odd_ones] == [
        "B-LOC", "B-LOC", "I-LOC", "B-LOC", "B-LOC", "O", "O", "O", None, None, None
    ]  # fmt: skip


def test_runs_of_earlier_versions_keep_their_scheme():
    rows = [["B-PER", "I-PER"], ["B_LOC"]], [["B-PER", "M-PER", "E-PER"]], [["B-PER"] * 9, ["S-LOC"]]
    assert [detect_scheme(one, majority=False) for one in rows] == [None, None, "bioes"]
    assert [detect_scheme(one) for one in rows] == ["bio", "bmes", "bio"]
