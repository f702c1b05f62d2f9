"""Worked examples of information theory."""

import math

import numpy as np
import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.perplexity import cross_entropy, entropy, perplexity


def test_entropy_worked():
    assert entropy([1 / 2, 1 / 4, 1 / 8, 1 / 8]) == 1.75
    assert entropy([0.5, 0.5]) == 1
    assert entropy([1.0, 0.0]) == 0
    assert entropy(np.full(8, 1 / 8)) == 3


def test_cross_entropy_worked():
    q = [0.3, 0.3, 0.4]
    assert cross_entropy(2, q) == pytest.approx(0.916, abs=5e-4)
    assert cross_entropy([0, 0, 1], q) == pytest.approx(-math.log(0.4))
    assert cross_entropy([0.5, 0.5], [0.25, 0.75]) == pytest.approx(-(math.log(0.25) + math.log(0.75)) / 2)


def test_cross_entropy_with_itself_is_the_entropy_in_nats():
    p = [1 / 2, 1 / 4, 1 / 8, 1 / 8]
    assert cross_entropy(p, p) == pytest.approx(1.75 * math.log(2))
    assert cross_entropy(p, [1 / 4] * 4) > cross_entropy(p, p)


def test_the_impossible_costs_infinitely_much_only_if_it_happens():
    assert cross_entropy(1, [1.0, 0.0]) == math.inf
    assert cross_entropy([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert cross_entropy([1.0, 0.0], [1.0, 0.0]) == 0


@pytest.mark.parametrize("n", [1, 2, 10, 50_000])
def test_uniform_among_n_has_perplexity_n(n):
    assert perplexity(7 * math.log(n), 7) == pytest.approx(n)


def test_perplexity_at_the_edges():
    assert math.isnan(perplexity(0.0, 0))
    assert perplexity(1e6, 1) == math.inf
    assert perplexity(0.0, 5) == 1


@pytest.mark.parametrize("bad", [[0.5, 0.6], [1.5, -0.5], [], [[1.0]], [math.nan, 1.0]])
def test_no_distribution(bad):
    with pytest.raises(SeqloomError, match="no distribution"):
        entropy(bad)


def test_label_and_sizes_are_checked():
    with pytest.raises(SeqloomError, match="outside 0"):
        cross_entropy(2, [0.5, 0.5])
    with pytest.raises(SeqloomError, match="outside 0"):
        cross_entropy(-1, [0.5, 0.5])
    with pytest.raises(SeqloomError, match="p has 1 entries but q has 2"):
        cross_entropy([1.0], [0.5, 0.5])
