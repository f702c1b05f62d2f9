"""The percentile bootstrap: fast equals slow, and it covers what it should."""

import numpy as np
import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import draws, interval, ratio_interval, resampled_sums

RANDOM = np.random.default_rng(0)
ERRORS, LENGTHS = RANDOM.integers(0, 4, 300), RANDOM.integers(3, 12, 300)


def test_fast_equals_slow_under_the_same_draws():
    def slow(rows):
        return ERRORS[rows].sum() / LENGTHS[rows].sum()

    for seed in (1, 2):
        expected = interval(slow, 300, samples=200, seed=seed, level=0.9)
        assert ratio_interval(ERRORS, LENGTHS, samples=200, seed=seed, level=0.9) == pytest.approx(expected, abs=1e-12)
    assert ratio_interval(ERRORS, LENGTHS, seed=1) != ratio_interval(ERRORS, LENGTHS, seed=2)


def test_sums_of_drawn_rows():
    table = RANDOM.integers(0, 9, (20, 3))
    expected = [table[rows].sum(axis=0) for rows in draws(20, 50, 7)]
    np.testing.assert_array_equal(resampled_sums(table, samples=50, seed=7), expected)


def test_interval_contains_the_point_estimate_and_widens_with_the_level():
    low, high = ratio_interval(ERRORS, LENGTHS)
    assert low < ERRORS.sum() / LENGTHS.sum() < high
    wider_low, wider_high = ratio_interval(ERRORS, LENGTHS, level=0.99)
    assert wider_low < low < high < wider_high


def test_width_is_that_of_the_normal_theory():
    hits = np.arange(1000) % 2  # a fair coin: ± 1.96 · 0.5 / √1000
    low, high = interval(lambda rows: hits[rows].mean(), 1000, samples=2000)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 1000**0.5, rel=0.1)
    assert (low + high) / 2 == pytest.approx(0.5, abs=0.01)


def test_no_spread_no_width():
    assert ratio_interval([1, 2, 3], [2, 4, 6], samples=50) == (0.5, 0.5)


def test_percentiles_of_known_scores():
    scores = iter(range(101))
    assert interval(lambda rows: next(scores), 5, samples=101, level=0.9) == pytest.approx((5, 95))


def test_edges():
    assert np.isnan(ratio_interval([], [])).all()
    assert ratio_interval([0, 0], [0, 0], samples=5) == (0, 0)
    with pytest.raises(SeqloomError, match="level"):
        ratio_interval([1], [1], level=95)
    with pytest.raises(SeqloomError, match="1 numerators but 2 denominators"):
        ratio_interval([1], [1, 2])
