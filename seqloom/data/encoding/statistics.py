"""What a data set is like, in numbers that JSON can hold: a run keeps them as data.json."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK
from seqloom.data.tokenizers.vocabulary import Codec

if TYPE_CHECKING:
    from seqloom.data.batches.pairs import PairSource

COMMONEST = 20  # tokens of each side that are named


def facts_of(corpus: PairSource, counts: tuple[np.ndarray, np.ndarray], hashes: np.ndarray) -> dict[str, Any]:
    """Of the training or the validation data; specials are not counted. `counts`: how often each id comes."""
    lengths = {"source": corpus.source_lengths - 1, "target": corpus.target_lengths - 2}
    facts: dict[str, Any] = {"pairs": len(corpus), "distinct_sources": len(np.unique(hashes))}
    for (side, values), ids in zip(lengths.items(), counts, strict=True):
        tokens, unknown = int(ids[UNK:].sum()), int(ids[UNK])
        facts[side] = {"tokens": tokens, "lengths": spread(np.bincount(values))}
        facts[side] |= {"unknown_tokens": unknown, "unknown": round(unknown / tokens, 6) if tokens else 0.0}
    return facts


def vocabulary(codec: Codec, counts: np.ndarray) -> dict[str, Any]:
    """The size of a side's vocabulary, specials not counted, and its commonest tokens in the training data."""
    order = np.argsort(-counts[len(SPECIALS) :], kind="stable")[:COMMONEST] + len(SPECIALS)
    commonest = [[codec.token(number), int(counts[number])] for number in order.tolist() if counts[number]]
    return {"size": len(codec.tokens), "commonest": commonest}


def overlap(train: np.ndarray, valid: np.ndarray) -> int:
    """How many of the validation sources stand in the training data too, by their hashes."""
    return int(np.isin(valid, train).sum())


def summary(lengths: Counter[int]) -> dict[str, float]:
    """`spread` of counted lengths."""
    counts = np.zeros(max(lengths, default=0) + 1, np.int64)
    counts[list(lengths.keys())] = list(lengths.values())
    return spread(counts)


def spread(counts: np.ndarray) -> dict[str, float]:
    """Mean, median, 95th percentile (the smallest length that covers the share) and maximum.

    `counts[n]`: how many texts have the length n.
    """
    total = int(counts.sum())
    if not total:
        return {"mean": 0.0, "median": 0, "p95": 0, "longest": 0}
    upto = np.cumsum(counts)
    median, p95 = (int(np.searchsorted(upto * 100, percent * total)) for percent in (50, 95))
    mean = round(float((np.arange(len(counts)) * counts).sum()) / total, 2)
    return {"mean": mean, "median": median, "p95": p95, "longest": int(np.flatnonzero(counts)[-1])}
