"""Scores of labels and numbers against values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.classification import (
    BINS,
    LabelPredictions,
    NumberPredictions,
    by_label,
    calibration,
    confusion,
    score_labels,
)

# Three labels: wanted 0 0 1 1 2 and one that the training data lacks, guessed 0 1 1 1 0 2.
PREDICTIONS = LabelPredictions.of_labels(
    np.array([0, 1, 1, 1, 0, 2]), np.array([0, 0, 1, 1, 2, -1]), np.array([0.9, 0.6, 0.8, 0.7, 0.5, 0.4]), 3
)


def metrics(found, **more):
    return score_labels(found, samples=0, **more).metrics


def test_accuracy_and_f1_by_hand():
    got = metrics(PREDICTIONS)
    assert got["accuracy"] == pytest.approx(100 * 3 / 6)
    # F1 = 2 hits / (guessed + wanted): label 0: 2·1/(2+2); label 1: 2·2/(3+2); label 2: 2·0/(1+1).
    assert got["macro_f1"] == pytest.approx(100 * (0.5 + 0.8 + 0.0) / 3)
    assert got["micro_f1"] == pytest.approx(got["accuracy"])


def test_a_label_neither_guessed_nor_wanted_has_no_f1():
    found = LabelPredictions.of_labels(np.array([0, 0]), np.array([0, 0]), np.array([1.0, 1.0]), 4)
    assert metrics(found)["macro_f1"] == pytest.approx(100)


def test_several_labels_by_hand():
    wanted = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], bool)
    guessed = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], bool)
    got = metrics(LabelPredictions(guessed, wanted, np.array([0.5, 0.5, 0.5])))
    assert got["accuracy"] == pytest.approx(100 / 3)
    assert got["micro_f1"] == pytest.approx(100 * 2 * 2 / (3 + 3))
    assert got["macro_f1"] == pytest.approx(100 * (1 + 1 + 0) / 3)


def test_a_wanted_label_without_a_column_is_missed():
    found = LabelPredictions(np.array([[True]]), np.array([[True]]), np.array([0.9]), np.array([1]))
    got = metrics(found)
    assert got["accuracy"] == 0
    assert got["micro_f1"] == pytest.approx(100 * 2 / 3)


def test_confusion_and_precision_by_label():
    assert confusion(PREDICTIONS).tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0], [0, 0, 1]]
    told = by_label(PREDICTIONS)
    assert told[0] == {"precision": 50.0, "recall": 50.0, "f1": 50.0, "wanted": 2, "guessed": 2}
    assert told[1] == {"precision": 66.667, "recall": 100.0, "f1": 80.0, "wanted": 2, "guessed": 3}
    assert (
        by_label(LabelPredictions.of_labels(np.array([0]), np.array([0]), np.array([1.0]), 2))[1]["precision"] is None
    )


def test_calibration_error_by_hand():
    """Two bins: 0.62 and 0.66 share one (9/15, 10/15], with one of two right; 0.95 alone, right."""
    found = LabelPredictions.of_labels(np.array([0, 0, 0]), np.array([0, 1, 0]), np.array([0.62, 0.66, 0.95]), 2)
    expected = 100 * (abs(1 - 1.28) + abs(1 - 0.95)) / 3
    assert metrics(found)["calibration_error"] == pytest.approx(expected)
    bins = calibration(found)
    assert [one["count"] for one in bins] == [2, 1]
    assert bins[0]["confidence"] == pytest.approx(0.64)
    assert bins[0]["accuracy"] == pytest.approx(0.5)
    assert bins[0]["low"] == pytest.approx(9 / BINS)


def test_ends_of_bins_belong_to_the_bin_below():
    found = LabelPredictions.of_labels(np.zeros(3, int), np.zeros(3, int), np.array([0.0, 1 / BINS, 1.0]), 2)
    assert [one["count"] for one in calibration(found)] == [2, 1]


def test_a_perfectly_calibrated_guesser():
    draw = np.random.default_rng(0)
    sure = draw.uniform(0.5, 1, 200_000)
    right = draw.uniform(size=sure.size) < sure
    found = LabelPredictions.of_labels(np.zeros(sure.size, int), np.where(right, 0, 1), sure, 2)
    assert metrics(found)["calibration_error"] < 0.5


def test_numbers_by_hand():
    got = metrics(NumberPredictions(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 4.0])))
    assert got["mse"] == pytest.approx(5 / 3)
    assert got["mae"] == pytest.approx(1)
    assert got["r2"] == pytest.approx(1 - 5 / 6)
    assert np.isnan(metrics(NumberPredictions(np.array([1.0, 2.0]), np.array([3.0, 3.0])))["r2"])


def test_intervals_hold_the_score_and_choices_are_checked():
    draw = np.random.default_rng(1)
    wanted, guessed = draw.integers(0, 3, 300), draw.integers(0, 3, 300)
    scores = score_labels(LabelPredictions.of_labels(guessed, wanted, np.full(300, 0.5), 3), samples=200)
    for name, value in scores.metrics.items():
        low, high = scores.intervals[name]
        # The bootstrap of a sum of absolute values lies above it: chance never evens out a bin.
        assert low <= value <= high or name == "calibration_error"
    assert scores.count == 300
    with pytest.raises(SeqloomError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        score_labels(PREDICTIONS, metrics=["acuracy"])
    assert all(np.isnan(value) for value in metrics(NumberPredictions(np.zeros(0), np.zeros(0))).values())
