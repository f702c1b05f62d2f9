"""Evaluates a model of table rows: scores and details as values for a report."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.batches.table import TableSource
from seqloom.data.formats.pairs import Example
from seqloom.data.formats.table import Row
from seqloom.errors import SeqloomError
from seqloom.inspection.column_importance import importance
from seqloom.metrics.classification import LabelPredictions, NumberPredictions, score_labels
from seqloom.tasks.classify.evaluation import by_labels, example_lists, with_errors
from seqloom.tasks.shared.evaluation import common_details
from seqloom.tasks.shared.label_predictions import label_answers

if TYPE_CHECKING:
    from seqloom.tasks.table.model import TableModel

IMPORTANCE_ROWS = 500  # rows of which a column is dealt out anew
SCATTER_POINTS = 400  # points of a scatter
WEIGHTS_SHOWN = 200  # values of a linear model, the heaviest


def evaluation_details(estimator: TableModel, examples: Sequence[Row], *, most: int = 1000) -> dict[str, Any]:
    """Evaluate on at most `most` rows, chosen by a hash of their fields, so that other models are asked the same."""
    asked = sorted(examples, key=_hash)[:most] if len(examples) > most else list(examples)
    if not asked:
        raise SeqloomError("no rows to evaluate on")
    rows = estimator.schema.encode(asked)
    started = time.monotonic()
    logits = estimator.logits(rows)
    seconds = time.monotonic() - started
    asked_rows = sorted((*row.fields, row.target) for row in asked)
    return {
        **common_details(estimator, estimator.score(rows, logits), asked_rows, seconds, len(examples)),
        **_details(estimator, asked, rows, logits),
        "importance": column_importance(estimator, estimator.schema.encode(sorted(asked, key=_hash)[:IMPORTANCE_ROWS])),
        **_weights(estimator),
    }


def _details(estimator: TableModel, asked: Sequence[Row], rows: TableSource, logits: np.ndarray) -> dict[str, Any]:
    """Which rows, which classes, or how far off."""
    found = estimator.found(rows, logits)
    texts = [Example(_display(estimator, row), (row.target,), row.file, row.line) for row in asked]
    answers = [label_answers(estimator.schema.prediction, row)[0] for row in logits]
    if isinstance(found, LabelPredictions):
        wrong = (~found.correct).astype(float)
        return {
            "examples": example_lists(texts, answers, wrong, np.zeros(len(texts))),
            **by_labels(found, estimator.schema.classes),
        }
    points = np.stack([found.reference, found.predicted], 1)[:SCATTER_POINTS]
    return {
        "examples": with_errors(example_lists(texts, answers, np.abs(found.errors), np.zeros(len(texts)))),
        "scatter": {"target": estimator.schema.target.name, "points": _rounded(points)},
    }


def column_importance(estimator: TableModel, rows: TableSource) -> dict[str, Any]:
    """Permutation importance of each column, the greatest first: how much accuracy (in %) or R² is lost."""
    metric = "accuracy" if estimator.schema.classes else "r2"

    def score(some: TableSource) -> float:
        found: LabelPredictions | NumberPredictions = estimator.found(some, estimator.logits(some))
        return score_labels(found, metrics=[metric], samples=0).metrics[metric]

    columns = sorted(importance(score, rows), key=lambda one: -one["fall"])
    described = [{**one, "fall": round(one["fall"], 5), "deviation": round(one["deviation"], 5)} for one in columns]
    return {"metric": metric, "rows": len(rows), "columns": described}


def _weights(estimator: TableModel) -> dict[str, Any]:
    """Of a linear model, for each output: the values that weigh most, [value, weight, weight per unit]."""
    found = estimator.weights()
    if found is None or not found["values"]:
        return {}
    outputs = []
    for name, weights, units, bias in zip(
        *(found[key] for key in ("outputs", "weights", "per_unit", "bias")), strict=True
    ):
        order = sorted(range(len(weights)), key=lambda i: -abs(weights[i]))[:WEIGHTS_SHOWN]
        rows = [[found["values"][i], *_rounded(np.array([weights[i], units[i]]))] for i in order]
        outputs.append({"output": name, "bias": _rounded(np.array(bias)), "values": rows})
    return {"weights": {"outputs": outputs, "texts": bool(estimator.schema.texts)}}


def _display(estimator: TableModel, row: Row) -> str:
    """A row for display."""
    return ", ".join(f"{name}: {text}" for name, text in zip(estimator.schema.layout.columns, row.fields, strict=True))


def _rounded(values: np.ndarray) -> Any:
    """The values with six significant digits, as lists."""
    return np.array([float(f"{value:.6g}") for value in values.ravel().tolist()]).reshape(values.shape).tolist()


def _hash(row: Row) -> bytes:
    return hashlib.blake2b("\0".join(row.fields).encode()).digest()
