"""The textbook's BLEU, worked by hand."""

import math

import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.text.textbook_bleu import bleu, precision

LABEL, PREDICTION = "A B C D E F", "A B B C D"


@pytest.mark.parametrize(("n", "expected"), [(1, 4 / 5), (2, 3 / 4), (3, 1 / 3), (4, 0)])
def test_precisions_of_the_books_example(n, expected):
    assert precision(PREDICTION.split(), LABEL.split(), n) == pytest.approx(expected)


def test_bleu_of_the_books_example():
    brevity = math.exp(1 - 6 / 5)
    assert bleu(PREDICTION, LABEL, k=1) == pytest.approx(brevity * (4 / 5) ** 0.5)
    assert bleu(PREDICTION, LABEL, k=2) == pytest.approx(brevity * (4 / 5) ** 0.5 * (3 / 4) ** 0.25)
    assert bleu(PREDICTION, LABEL, k=3) == pytest.approx(brevity * (4 / 5) ** 0.5 * (3 / 4) ** 0.25 * (1 / 3) ** 0.125)
    assert bleu(PREDICTION, LABEL, k=4) == 0
    assert bleu(PREDICTION, LABEL) == bleu(PREDICTION, LABEL, k=2)


def test_perfect_too_long_and_too_short():
    assert bleu("va !", "va !") == 1
    assert bleu("va ! !", "va !", k=1) == pytest.approx((2 / 3) ** 0.5)  # longer: no bonus, no penalty
    assert bleu("A B", LABEL, k=2) == pytest.approx(math.exp(1 - 6 / 2))  # the book's example of brevity: e^−2


def test_counts_are_clipped():
    assert precision(["the", "the", "the", "the"], ["the", "cat", "the"], 1) == 0.5


def test_short_and_empty():
    assert bleu("va", "va", k=4) == 1  # orders 2 to 4 do not exist and are left out
    assert bleu("", "va !") == 0
    assert bleu("   ", "va !") == 0
    assert bleu("va", "") == 0
    assert precision([], ["a"], 1) == 0


def test_k_is_checked():
    with pytest.raises(SeqloomError, match="k, the longest"):
        bleu("a", "a", k=0)
