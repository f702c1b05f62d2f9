"""Edit distances against hand-worked values, each other and jiwer."""

import sys

import jiwer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics.text import error_rates
from seqloom.metrics.text.error_rates import edit_distance, edit_distance_plain, error_rate

TOKENS = st.lists(st.sampled_from(["a", "b", "ab", "", 97, -1, -2, ("a",)]), max_size=8)
REFERENCES = ["the cat sat on the mat", "a  dog barks", "one two three", "same", " ends are blank "]
PREDICTIONS = ["the cat sat mat", "a dog barked loudly", "", "same", "ends  are blank"]


@pytest.mark.parametrize("distance", [edit_distance, edit_distance_plain])
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("kitten", "sitting", 3),
        ("", "abc", 3),
        ("abc", "", 3),
        ("", "", 0),
        ("flaw", "lawn", 2),
        (["K", "AE1", "T"], ["K", "AE0", "T", "S"], 2),
        (["ab", "c"], ["a", "bc"], 2),  # tokens, not their letters
        ([97], ["a"], 1),
        ([-1], [-2], 1),
    ],
)
def test_worked_distances(distance, a, b, expected):
    assert distance(a, b) == expected


@given(TOKENS, TOKENS)
def test_fast_and_plain_are_twins_on_tokens(a, b):
    assert edit_distance(a, b) == edit_distance_plain(a, b)


@given(st.text(max_size=12), st.text(max_size=12))
def test_fast_and_plain_are_twins_on_text(a, b):
    assert edit_distance(a, b) == edit_distance_plain(a, b) == edit_distance(list(a), list(b))


def test_the_fast_path_is_taken_here(monkeypatch):
    monkeypatch.setattr(error_rates, "edit_distance_plain", lambda a, b: pytest.fail("rapidfuzz is installed"))
    assert edit_distance("ab", "b") == 1


def test_without_rapidfuzz_the_plain_twin_answers(monkeypatch):
    error_rates._rapidfuzz.cache_clear()
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    try:
        assert error_rates._rapidfuzz() is None
        assert edit_distance("kitten", "sitting") == 3
    finally:
        error_rates._rapidfuzz.cache_clear()


def test_word_and_character_rates_equal_jiwer():
    words = error_rate([p.split() for p in PREDICTIONS], [[r.split()] for r in REFERENCES])
    assert words.rate == pytest.approx(jiwer.wer(REFERENCES, PREDICTIONS))
    letters = error_rate([list(p.strip()) for p in PREDICTIONS], [[list(r.strip())] for r in REFERENCES])
    assert letters.rate == pytest.approx(jiwer.cer(REFERENCES, PREDICTIONS))


def test_rate_is_of_sums_not_a_mean_of_rates():
    counted = error_rate([["a"], ["a", "b", "c"]], [[["x"]], [["a", "b", "c"]]])
    np.testing.assert_array_equal(counted.errors, [1, 0])
    np.testing.assert_array_equal(counted.lengths, [1, 3])
    assert counted.rate == 0.25  # the mean of the two rates would be 0.5


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    ("prediction", "references", "expected"),
    [
        ("a b c", ["x y", "a b d"], (1, 3)),  # three edits against one
        ("a b c", ["a b", "a b c d"], (1, 2)),  # one edit each: the shorter, which does not flatter
        ("a b c d e f", ["a b c d", "a b c d e f g h i"], (2, 4)),  # 2 of 4 against 3 of 9: edits count, not rates
        ("a b", ["a b", "a b c d e"], (0, 2)),
        ("", ["", "a"], (0, 0)),
    ],
)
def test_of_several_references_the_closest_counts(prediction, references, expected, flip):
    several = [reference.split() for reference in (references[::-1] if flip else references)]
    counted = error_rate([prediction.split()], [several])
    assert (counted.errors[0], counted.lengths[0]) == expected


def test_empty_texts_and_empty_lists():
    assert error_rate([[]], [[[]]]).rate == 0
    assert error_rate([["a", "b"]], [[[]]]).rate == jiwer.wer([""], ["a b"]) == 2
    assert error_rate([], []).errors.shape == (0,)


def test_errors_name_the_place():
    with pytest.raises(SeqloomError, match="1 predictions but 2 references"):
        error_rate([["a"]], [[["a"]], [["b"]]])
    with pytest.raises(SeqloomError, match="prediction 2 has no reference"):
        error_rate([["a"], ["b"]], [[["a"]], []])
