"""Evaluates a classifier or regressor: scores and details as values for a report."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.formats.pairs import Example
from seqloom.decoding.batched import Answer
from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import ratio_interval
from seqloom.metrics.classification import LabelPredictions, NumberPredictions, by_label, calibration, confusion
from seqloom.tasks.shared.evaluation import common_details, finite
from seqloom.tasks.shared.label_predictions import label_answers

if TYPE_CHECKING:
    from seqloom.tasks.classify.model import ClassifyModel

BUCKETS, SHOWN, LABELS_SHOWN, ATTENTION_SHOWN = 6, 10, 25, 6
LONGEST_PICTURE = 40  # tokens of an attention picture: more would not be readable


def evaluation_details(labeller: ClassifyModel, examples: Sequence[Example], *, most: int = 1000) -> dict[str, Any]:
    """Evaluate on at most `most` examples, chosen by a hash of the text, so that other models are asked the same."""
    asked = sorted(examples, key=lambda one: _hash(one.source, b""))[:most] if len(examples) > most else list(examples)
    if not asked:
        raise SeqloomError("no examples to evaluate on")
    started = time.monotonic()
    logits = labeller.logits([example.source for example in asked])
    seconds = time.monotonic() - started
    found = labeller.found(asked, logits)
    asked_pairs = sorted((example.source, example.targets) for example in asked)
    return {
        **common_details(labeller, labeller.score(asked, logits), asked_pairs, seconds, len(examples)),
        **_details(labeller, asked, logits, found),
    }


def _details(
    labeller: ClassifyModel, asked: Sequence[Example], logits: np.ndarray, found: LabelPredictions | NumberPredictions
) -> dict[str, Any]:
    """The details beside the scores."""
    answers = [label_answers(labeller.target, row)[0] for row in logits]
    texts = [example.source for example in asked]
    lengths = np.array([len(labeller.display_tokens(text)) for text in texts])
    if isinstance(found, NumberPredictions):
        errors = np.abs(found.errors)
        picked = with_errors(example_lists(asked, answers, errors, lengths))
        return {"examples": picked, "error_by_length": _by_length(lengths, errors)}
    return {
        "examples": example_lists(asked, answers, (~found.correct).astype(float), lengths),
        "error_by_length": _by_length(lengths, 100.0 * ~found.correct),
        **by_labels(found, labeller.target.names, labeller.target.kind == "label"),
        **_attention_maps(labeller, asked, answers),
    }


def by_labels(found: LabelPredictions, names: Sequence[str], single: bool = True) -> dict[str, Any]:
    """How well each label is predicted, how well calibrated that is, and which label is taken for which."""
    table = [{"label": name, **one} for name, one in zip(names, by_label(found), strict=True)]
    return {
        "by_label": sorted(table, key=lambda one: -one["wanted"]),
        "calibration": [{key: round(value, 4) for key, value in one.items()} for one in calibration(found)],
        **({"label_confusion": _confusion(found, names)} if single else {}),
    }


def example_lists(
    asked: Sequence[Example], answers: list[Answer], errors: np.ndarray, lengths: np.ndarray
) -> dict[str, list[dict[str, Any]]]:
    """The best (of those all right the surest, then the mildest errors), the worst (of equals the surest), and some at
    random, by a hash."""
    sure = [answer.confidence for answer in answers]
    every = range(len(asked))
    right = sorted((i for i in every if not errors[i]), key=lambda i: (-sure[i], -lengths[i]))
    worst = sorted((i for i in every if errors[i] > 0), key=lambda i: (-errors[i], -sure[i]))
    drawn = sorted(every, key=lambda i: _hash(asked[i].source, b"random"))
    picked = {"best": [*right, *reversed(worst)], "worst": worst, "random": drawn}
    return {
        name: [_example(asked[i], answers[i], float(errors[i])) for i in several[:SHOWN]]
        for name, several in picked.items()
    }


def _example(example: Example, answer: Answer, error: float) -> dict[str, Any]:
    wanted = example.targets[0].strip()
    return {
        "source": example.source,
        "references": [wanted],
        "prediction": answer.text,
        "log_probability": finite(round(answer.log_probability, 4)),
        "confidence": finite(round(answer.confidence, 4)),
        "wrong": int(error > 0),
    }


def with_errors(picked: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Examples of numbers: no prediction is right or wrong, it is off by so much."""
    for one in (one for several in picked.values() for one in several):
        del one["wrong"]
        one["off"] = abs(float(one["prediction"]) - float(one["references"][0]))
    return picked


def _by_length(lengths: np.ndarray, errors: np.ndarray) -> list[dict[str, Any]]:
    """The mean error by the length of the text, in about `BUCKETS` groups as even as whole lengths allow."""
    ends = np.unique(np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:], method="inverted_cdf"))
    places = np.searchsorted(ends, lengths)
    return [_bucket(lengths[places == place], errors[places == place]) for place in range(len(ends))]


def _bucket(lengths: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    low, high = ratio_interval(errors, np.ones(len(errors)))
    return {
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "count": len(lengths),
        "error": round(float(errors.mean()), 4),
        "interval": [round(low, 4), round(high, 4)],
    }


def _confusion(found: LabelPredictions, names: Sequence[str]) -> dict[str, Any]:
    """`table[i][j]` counts how often `labels[j]` was predicted where `labels[i]` was wanted. Of many labels, those most
    involved in mistakes; `pairs` are the commonest mistakes of all, [wanted, predicted, count]."""
    table = confusion(found)
    square = table[:-1]
    wrong = square - np.diag(np.diag(square))
    involved = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:LABELS_SHOWN]
    chosen = np.sort(involved) if len(names) > LABELS_SHOWN else np.arange(len(names))
    order = np.argsort(-wrong, axis=None, kind="stable")[:20].tolist()
    pairs = [(*divmod(place, len(names)), int(wrong.flat[place])) for place in order]
    return {
        "right": int(np.diag(square).sum()),
        "wrong": int(wrong.sum()),
        "unknown": int(table[-1].sum()),  # labels that the training data lacks
        "labels": [names[i] for i in chosen.tolist()],
        "table": square[np.ix_(chosen, chosen)].tolist(),
        "pairs": [[names[i], names[j], count] for i, j, count in pairs if count],
    }


def _attention_maps(labeller: ClassifyModel, asked: Sequence[Example], answers: list[Answer]) -> dict[str, Any]:
    """The weights of attention pooling in some examples of readable length; empty for other poolings."""
    fitting = [i for i, one in enumerate(asked) if 3 <= len(labeller.display_tokens(one.source)) < LONGEST_PICTURE]
    drawn = sorted(fitting, key=lambda i: _hash(asked[i].source, b"looked"))[:ATTENTION_SHOWN]
    seen = [(i, labeller.attention(asked[i].source)) for i in drawn]
    maps = [
        {
            "tokens": [token for token, _ in weights],
            "weights": [round(weight, 3) for _, weight in weights],
            "wanted": asked[i].targets[0].strip(),
            "prediction": answers[i].text,
        }
        for i, weights in seen
        if weights
    ]
    return {"looked": maps} if maps else {}


def _hash(text: str, key: bytes) -> bytes:
    return hashlib.blake2b(text.encode(), key=key).digest()
