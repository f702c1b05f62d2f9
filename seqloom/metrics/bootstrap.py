"""Confidence intervals of scores: the percentile bootstrap over examples.

Efron and Tibshirani 1993, chapter 13; Koehn 2004 for translation scores. Draw N examples with replacement, compute the
score, and repeat; the interval leaves (1 − level) / 2 of these scores on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from seqloom.errors import SeqloomError


def interval(
    statistic: Callable[[np.ndarray], float],
    n: int,
    *,
    samples: int = 1000,
    seed: int = 12345,
    level: float = 0.95,
) -> tuple[float, float]:
    """(low, high) of `statistic`, which gets the numbers of the drawn rows, [n] int with repeats."""
    return percentiles([statistic(rows) for rows in draws(n, samples, seed)], level)


def ratio_interval(
    numerator: Sequence[float] | np.ndarray,
    denominator: Sequence[float] | np.ndarray,
    *,
    samples: int = 1000,
    seed: int = 12345,
    level: float = 0.95,
) -> tuple[float, float]:
    """`interval` of Σ numerator / Σ denominator, both [n], without a Python call per draw; 0/0 is as x/1."""
    if len(numerator) != len(denominator):
        raise SeqloomError(f"{len(numerator)} numerators but {len(denominator)} denominators.")
    sums = resampled_sums(np.stack([numerator, denominator], axis=1), samples=samples, seed=seed)
    return percentiles(sums[:, 0] / np.where(sums[:, 1] == 0, 1, sums[:, 1]), level)


def resampled_sums(table: np.ndarray, *, samples: int = 1000, seed: int = 12345) -> np.ndarray:
    """[n, K] statistics of the examples → [samples, K], their sums over each draw.

    How often each row was drawn, times the table: exact for whole numbers, and it never copies the drawn rows.
    """
    table = np.asarray(table, dtype=np.float64)  # float for BLAS
    n = len(table)
    sums = [np.bincount(rows, minlength=n) @ table for rows in draws(n, samples, seed)]
    return np.array(sums).reshape(-1, table.shape[1])


def draws(n: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """`samples` times n row numbers with replacement; the same for all statistics, so that two models are comparable.

    One draw at a time: all at once would be gigabytes for a large test set. No draws at all from no rows.
    """
    generator = np.random.default_rng(seed)
    for _ in range(samples if n else 0):
        yield generator.integers(n, size=n)


def percentiles(scores: Sequence[float] | np.ndarray, level: float) -> tuple[float, float]:
    """The middle `level` of the scores; (nan, nan) where there are none."""
    if not 0 < level < 1:
        raise SeqloomError(f"level must lie between 0 and 1, not {level}.")
    if len(scores) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
