"""The BLEU of the textbook, to be worked by hand; reports use sacreBLEU's (`bleu_chrf.py`)."""

from __future__ import annotations

import math
from collections import Counter

from seqloom.errors import SeqloomError


def bleu(prediction: str, label: str, k: int = 2) -> float:
    """exp(min(0, 1 − len_label / len_pred)) · Π_{n=1..k} p_n^(1/2ⁿ), between 0 and 1, on words split at blanks.

    p_n is the share of the prediction's n-grams that are found in the label, each at most as often as it stands there
    (Zhang et al., Dive into Deep Learning, section 10.7, "Evaluation of Predicted Sequences"). The weight 1/2ⁿ makes
    long matches count more, since p^(1/2ⁿ) grows with n. As in the book's code, orders longer than the prediction are
    left out. An empty prediction scores 0.
    """
    if k < 1:
        raise SeqloomError(f"k, the longest n-gram, must be 1 or more, not {k}.")
    predicted, wanted = prediction.split(), label.split()
    if not predicted:
        return 0.0
    score = math.exp(min(0.0, 1 - len(wanted) / len(predicted)))
    for n in range(1, min(k, len(predicted)) + 1):
        score *= precision(predicted, wanted, n) ** (0.5**n)
    return score


def precision(predicted: list[str], wanted: list[str], n: int) -> float:
    """p_n = matched n-grams, clipped at the label's counts / n-grams of the prediction; 0 where it has none."""
    ours = _ngrams(predicted, n)
    matched = ours & _ngrams(wanted, n)  # Counter's & is the smaller count of each: the clipping
    return matched.total() / ours.total() if ours else 0.0


def _ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
