"""Metrics of predicted labels and numbers: accuracy, F-scores, calibration; squared and absolute errors, R²."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.metric_table import functions, metric_names
from seqloom.metrics.text.text_metrics import Scores, percent, with_intervals
from seqloom.version import __version__

BINS = 15  # of the calibration, as in the paper's experiments


@dataclass(frozen=True, eq=False)
class LabelPredictions:
    """Predicted and reference labels, a row per example, a column per label. A reference label that the training data
    lacks has no column, and can only be missed."""

    predicted: np.ndarray  # [N, labels] bool
    reference: np.ndarray  # [N, labels] bool
    confidence: np.ndarray  # [N]: the model's probability that the whole row is right
    missing: np.ndarray | None = None  # [N] int: reference labels without a column; None: none

    @classmethod
    def of_labels(
        cls, predicted: np.ndarray, wanted: np.ndarray, confidence: np.ndarray, labels: int
    ) -> LabelPredictions:
        """One label each, by number; a reference −1 has no column."""
        columns = np.arange(labels)
        one, other = (np.asarray(side)[:, None] == columns for side in (predicted, wanted))
        return cls(one, other, np.asarray(confidence, np.float64), (np.asarray(wanted) < 0).astype(np.int64))

    @property
    def correct(self) -> np.ndarray:
        """[N] bool: exactly the reference labels."""
        equal = (self.predicted == self.reference).all(1)
        return equal if self.missing is None else equal & (self.missing == 0)


def accuracy(predictions: LabelPredictions) -> CorpusScore:
    """Share of examples predicted right; of several labels, all of them (subset accuracy; Tsoumakas & Katakis 2007)."""
    table = np.stack([predictions.correct, np.ones(len(predictions.correct))], 1)
    return CorpusScore(table, percent, _signature("accuracy"))


def macro_f1(predictions: LabelPredictions) -> CorpusScore:
    """The mean over labels of F1 = 2·hits / (predicted + wanted) (van Rijsbergen 1979; the mean: Lewis et al. 2004).

    A label that is neither predicted nor in the references has no F1 and does not count.
    """
    hits = predictions.predicted & predictions.reference
    table = np.concatenate([hits, predictions.predicted, predictions.reference], 1).astype(np.uint8)
    return CorpusScore(table, _macro_f1, _signature("macro_f1"))


def micro_f1(predictions: LabelPredictions) -> CorpusScore:
    """F1 over all decisions together (van Rijsbergen 1979; Lewis et al. 2004). With one label each, the accuracy."""
    hits = (predictions.predicted & predictions.reference).sum(1)
    wanted = predictions.reference.sum(1) + (0 if predictions.missing is None else predictions.missing)
    table = np.stack([2 * hits, predictions.predicted.sum(1) + wanted], 1)
    return CorpusScore(table, percent, _signature("micro_f1"))


def calibration_error(predictions: LabelPredictions) -> CorpusScore:
    """Expected calibration error: Σ_b |hits_b − Σ confidence_b| / N over 15 bins of equal width (Guo et al. 2017,
    equation 3). 0: of predictions with 80 % confidence, 80 % are right."""
    bins = _bin(predictions.confidence)[:, None] == np.arange(BINS)
    table = np.concatenate([bins * (predictions.correct - predictions.confidence)[:, None], np.ones((len(bins), 1))], 1)
    return CorpusScore(table, _calibration_gap, _signature(f"calibration_error|bins:{BINS}"))


def mse(numbers: NumberPredictions) -> CorpusScore:
    """Mean squared error, Σ (ŷ − y)² / N (Bishop 2006, section 1.5.5), in squared units of the numbers."""
    return CorpusScore(_with_ones(numbers.errors**2), _ratio, _signature("mse"))


def mae(numbers: NumberPredictions) -> CorpusScore:
    """Mean absolute error, Σ |ŷ − y| / N (Willmott & Matsuura 2005), in units of the numbers."""
    return CorpusScore(_with_ones(np.abs(numbers.errors)), _ratio, _signature("mae"))


def r2(numbers: NumberPredictions) -> CorpusScore:
    """1 − Σ (ŷ − y)² / Σ (y − ȳ)² (Wright 1921): 1 is exact, 0 no better than the mean of these numbers."""
    y = (
        numbers.reference - numbers.reference.mean() if len(numbers.reference) else numbers.reference
    )  # shifted for precision
    return CorpusScore(np.stack([numbers.errors**2, y, y**2, np.ones(len(y))], 1), _r2, _signature("r2"))


@dataclass(frozen=True, eq=False)
class NumberPredictions:
    """Predicted and reference numbers, both [N] float64."""

    predicted: np.ndarray
    reference: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        return self.predicted - self.reference


LABEL_METRICS: Mapping[str, Callable[[LabelPredictions], CorpusScore]] = functions("labels")
NUMBER_METRICS: Mapping[str, Callable[[NumberPredictions], CorpusScore]] = functions("numbers")


def score_labels(
    predictions: LabelPredictions | NumberPredictions,
    *,
    metrics: Sequence[str] | None = None,
    samples: int = 1000,
    seed: int = 12345,
) -> Scores:
    """Each of `metrics` (None: all that fit) with its 95 % bootstrap interval; `samples=0` leaves the intervals out."""
    table: Mapping[str, Callable[[Any], CorpusScore]] = (
        LABEL_METRICS if isinstance(predictions, LabelPredictions) else NUMBER_METRICS
    )
    measured = {name: table[name](predictions) for name in metric_names(metrics, table)}
    return with_intervals(measured, len(predictions.reference), samples, seed)


def confusion(predictions: LabelPredictions) -> np.ndarray:
    """[labels + 1, labels] counts of examples with one label each: rows are references, columns predictions; the last
    row is for labels that the training data lacks."""
    labels = predictions.reference.shape[1]
    rows = np.where(predictions.reference.any(1), predictions.reference.argmax(1), labels)
    return np.bincount(rows * labels + predictions.predicted.argmax(1), minlength=(labels + 1) * labels).reshape(
        -1, labels
    )


def by_label(predictions: LabelPredictions) -> list[dict[str, Any]]:
    """Precision, recall and F1 of every label in percent (0/0 is None), and its counts on both sides."""
    hits, predicted, wanted = (
        side.sum(0)
        for side in (predictions.predicted & predictions.reference, predictions.predicted, predictions.reference)
    )
    return [
        {
            "precision": _percentage(hit, ours),
            "recall": _percentage(hit, true),
            "f1": _percentage(2 * hit, ours + true),
            "wanted": int(true),
            "guessed": int(ours),
        }
        for hit, ours, true in zip(hits.tolist(), predicted.tolist(), wanted.tolist(), strict=True)
    ]


def calibration(predictions: LabelPredictions) -> list[dict[str, float]]:
    """Every non-empty bin: its limits, count, mean confidence and accuracy."""
    places = _bin(predictions.confidence)
    return [
        {
            "low": place / BINS,
            "high": (place + 1) / BINS,
            "count": int((places == place).sum()),
            "confidence": float(predictions.confidence[places == place].mean()),
            "accuracy": float(predictions.correct[places == place].mean()),
        }
        for place in np.unique(places).tolist()
    ]


def _bin(confidence: np.ndarray) -> np.ndarray:
    """Bins are open below and closed above, (0, 1/15], …, as the paper has them."""
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _percentage(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 3) if whole else None


def _macro_f1(sums: np.ndarray) -> float:
    hits, predicted, wanted = np.split(sums.astype(np.float64), 3)
    seen = predicted + wanted > 0
    return 100 * float((2 * hits[seen] / (predicted + wanted)[seen]).mean()) if seen.any() else float("nan")


def _calibration_gap(sums: np.ndarray) -> float:
    return 100 * float(np.abs(sums[:-1]).sum()) / max(float(sums[-1]), 1.0)


def _ratio(sums: np.ndarray) -> float:
    return float(sums[0]) / max(float(sums[1]), 1.0)


def _r2(sums: np.ndarray) -> float:
    errors, total, squares, count = map(float, sums)
    variation = squares - total**2 / count
    return 1 - errors / variation if variation > 0 else float("nan")


def _with_ones(values: np.ndarray) -> np.ndarray:
    return np.stack([values, np.ones(len(values))], 1)


def _signature(name: str) -> str:
    return f"{name}|version:{__version__}"
