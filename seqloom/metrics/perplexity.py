"""Entropy, cross-entropy and perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seqloom.errors import SeqloomError


def entropy(p: Sequence[float] | np.ndarray) -> float:
    """H(p) = −Σ p log₂ p in bits, with 0 log 0 = 0 (Shannon 1948, section 6)."""
    p = _distribution(p, "p")
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum()) + 0.0  # + 0.0 turns −0.0, the entropy of a sure thing, into 0.0


def cross_entropy(p_or_label: int | Sequence[float] | np.ndarray, q: Sequence[float] | np.ndarray) -> float:
    """H(p, q) = −Σ p ln q in nats; for a label y, that is a p with all its weight on y, −ln q_y.

    It is what a model q pays per token on data from p (Goodfellow et al. 2016, section 3.13); infinite where q says
    "never" of something that happens.
    """
    q = _distribution(q, "q")
    if np.ndim(p_or_label) == 0:
        label = int(p_or_label)  # pyright: ignore[reportArgumentType]
        if not 0 <= label < len(q):
            raise SeqloomError(f"label {label} is outside 0 … {len(q) - 1}, the places of q.")
        return -math.log(q[label]) + 0.0 if q[label] > 0 else math.inf
    p = _distribution(p_or_label, "p")  # pyright: ignore[reportArgumentType]
    if len(p) != len(q):
        raise SeqloomError(f"p has {len(p)} entries but q has {len(q)}; they must speak of the same outcomes.")
    real = p > 0
    with np.errstate(divide="ignore"):
        return float(-(p[real] * np.log(q[real])).sum()) + 0.0


def perplexity(total_nll_nats: float, count: float) -> float:
    """exp(Σ −ln q / count): among how many equally likely tokens the model chooses (Jelinek et al. 1977).

    It takes a sum and a count, since means of ragged batches do not average. NaN for a count of 0; infinite on
    overflow.
    """
    if count == 0:
        return math.nan
    try:
        return math.exp(total_nll_nats / count)
    except OverflowError:
        return math.inf


def _distribution(values: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    # 1e-4 lets a float32 softmax over a large vocabulary pass.
    if array.ndim != 1 or not (array >= 0).all() or abs(array.sum() - 1) > 1e-4:
        raise SeqloomError(f"{name} is no distribution: it must be a list of numbers ≥ 0 that sum to 1.")
    return array
