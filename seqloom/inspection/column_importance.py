"""Permutation importance of the columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seqloom.data.batches.table import TableSource


def importance(
    score: Callable[[TableSource], float], rows: TableSource, *, repeats: int = 5, seed: int = 7
) -> list[dict[str, Any]]:
    """Permutation importance (Breiman 2001, section 10, https://doi.org/10.1023/A:1010933404324): by how much the score
    of held-out rows falls, on average over `repeats`, when the values of one column are shuffled.

    Of two redundant columns each has little importance, though a model without both would be worse.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    orders = [draw.permutation(len(rows)) for _ in range(repeats)]  # the same for every column
    baseline = score(rows)
    results = []
    for number, column in enumerate(rows.schema.columns):
        falls = np.array([baseline - score(rows.permute_column(number, order)) for order in orders])
        results.append({"column": column.name, "fall": float(falls.mean()), "deviation": float(falls.std())})
    return results
