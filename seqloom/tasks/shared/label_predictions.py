"""What a model's outputs say: labels with their probability, or a number."""

from __future__ import annotations

import math

import numpy as np

from seqloom.data.batches.labels import Target
from seqloom.decoding.batched import Answer
from seqloom.metrics.classification import LabelPredictions, NumberPredictions

# What is scored unless something else is asked for. Of one label the micro F1 is the accuracy.
DEFAULT_METRICS = {
    "label": ("accuracy", "macro_f1", "calibration_error"),
    "labels": ("micro_f1", "macro_f1", "accuracy", "calibration_error"),
    "number": ("mae", "mse", "r2"),
}
SCORES = (
    "loss",
    *dict.fromkeys(name for names in DEFAULT_METRICS.values() for name in names if name != "calibration_error"),
)


def label_answers(target: Target, logits: np.ndarray, n_best: int = 1) -> list[Answer]:
    """The answers that one row of outputs stands for, best first."""
    if target.kind == "number":
        number = float(logits[0]) * target.deviation + target.mean
        return [Answer(f"{number:.6g}", (), number, 0.0, 1.0)]
    logits = logits.astype(np.float64)
    if target.kind == "labels":
        chosen = np.flatnonzero(logits > 0).tolist()
        log = float(-np.logaddexp(0, -np.abs(logits)).sum())
        text = target.separator.join(sorted(target.names[i] for i in chosen))
        return [Answer(text, tuple(chosen), log, log, math.exp(log / len(logits)))]
    logs = logits - np.logaddexp.reduce(logits)
    order = np.argsort(-logs, kind="stable")[:n_best].tolist()
    return [Answer(target.names[i], (i,), float(logs[i]), float(logs[i]), math.exp(logs[i])) for i in order]


def with_references(
    target: Target, logits: np.ndarray, references: np.ndarray, missing: np.ndarray | None = None
) -> LabelPredictions | NumberPredictions:
    """Outputs [N, outputs] beside the references, as `Target.numbers` gives them."""
    logits = logits.astype(np.float64)
    if target.kind == "number":
        return NumberPredictions(
            *(side * target.deviation + target.mean for side in (logits[:, 0], references.astype(np.float64)))
        )
    if target.kind == "labels":
        sure = np.exp(-np.logaddexp(0, -np.abs(logits)).sum(1))
        return LabelPredictions(logits > 0, references.astype(bool), sure, missing)
    sure = np.exp(logits.max(1) - np.logaddexp.reduce(logits, 1))
    return LabelPredictions.of_labels(logits.argmax(1), references, sure, target.size)
