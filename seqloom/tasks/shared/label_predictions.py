"""What a model's outputs say: labels with their probability, or a number."""

from __future__ import annotations

import math

import numpy as np

from seqloom.data.batches.labels import Target
from seqloom.decoding.batched import Answer
from seqloom.metrics.classification import LABEL_METRICS, NUMBER_METRICS, LabelPredictions, NumberPredictions
from seqloom.metrics.metric_table import METRICS

# Of each kind of target, its metrics that come first, and what is left out: of one label the micro F1 is the accuracy.
FIRST = {"label": ("accuracy",), "labels": ("micro_f1", "macro_f1"), "number": ("mae",)}
WITHOUT = {"label": ("micro_f1",)}


def default_metrics(target: str) -> list[str]:
    """What is scored unless something else is asked for."""
    names = dict.fromkeys([*FIRST[target], *(NUMBER_METRICS if target == "number" else LABEL_METRICS)])
    return [name for name in names if name not in WITHOUT.get(target, ())]


def label_scores() -> tuple[str, ...]:
    """What the best model may be chosen by."""
    names = dict.fromkeys(name for target in FIRST for name in default_metrics(target))
    return ("loss", *(name for name in names if METRICS[name].selects))


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
