"""Statistics of a data set as JSON: the data.json of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK
from seqloom.data.tokenizers.vocabulary import Codec

if TYPE_CHECKING:
    from seqloom.data.batches.pairs import PairSource

MOST_COMMON = 20  # tokens listed for each side


def pair_facts(corpus: PairSource, counts: tuple[np.ndarray, np.ndarray], hashes: np.ndarray) -> dict[str, Any]:
    """Statistics of the training or validation pairs, without specials. `counts`: of each id, on both sides."""
    lengths = {"source": corpus.source_lengths - 1, "target": corpus.target_lengths - 2}
    facts: dict[str, Any] = {"pairs": len(corpus), "distinct_sources": len(np.unique(hashes))}
    for (side, values), ids in zip(lengths.items(), counts, strict=True):
        tokens, unknown = int(ids[UNK:].sum()), int(ids[UNK])
        facts[side] = {"tokens": tokens, "lengths": length_statistics(np.bincount(values))}
        facts[side] |= {"unknown_tokens": unknown, "unknown": round(unknown / tokens, 6) if tokens else 0.0}
    return facts


def vocabulary_facts(codec: Codec, counts: np.ndarray) -> dict[str, Any]:
    """The size of a vocabulary, without specials, and its most frequent tokens in the training data."""
    order = np.argsort(-counts[len(SPECIALS) :], kind="stable")[:MOST_COMMON] + len(SPECIALS)
    commonest = [[codec.token(number), int(counts[number])] for number in order.tolist() if counts[number]]
    return {"size": len(codec.tokens), "commonest": commonest}


def count_shared(train: np.ndarray, valid: np.ndarray) -> int:
    """The number of validation sources that are also in the training data, by their hashes."""
    return int(np.isin(valid, train).sum())


def counter_statistics(lengths: Counter[int]) -> dict[str, float]:
    """`length_statistics` of a Counter of lengths."""
    counts = np.zeros(max(lengths, default=0) + 1, np.int64)
    counts[list(lengths.keys())] = list(lengths.values())
    return length_statistics(counts)


def length_statistics(counts: np.ndarray) -> dict[str, float]:
    """Mean, median, 95th percentile (the smallest length that covers that share) and maximum.

    `counts[n]`: the number of texts of length n.
    """
    total = int(counts.sum())
    if not total:
        return {"mean": 0.0, "median": 0, "p95": 0, "longest": 0}
    upto = np.cumsum(counts)
    median, p95 = (int(np.searchsorted(upto * 100, percent * total)) for percent in (50, 95))
    mean = round(float((np.arange(len(counts)) * counts).sum()) / total, 2)
    return {"mean": mean, "median": median, "p95": p95, "longest": int(np.flatnonzero(counts)[-1])}
