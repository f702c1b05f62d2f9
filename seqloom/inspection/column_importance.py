"""What a model of rows looks at: how much worse it gets when a column tells it nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seqloom.data.batches.table import TableSource


def importance(
    score: Callable[[TableSource], float], rows: TableSource, *, repeats: int = 5, seed: int = 7
) -> list[dict[str, Any]]:
    """Permutation importance (Breiman 2001, section 10, https://doi.org/10.1023/A:1010933404324): by how much the score
    of held-out rows falls, on average over `repeats`, when the fields of one column are dealt out anew among them.

    A column of which another tells the same has little importance, though a model without both would be worse.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    orders = [draw.permutation(len(rows)) for _ in range(repeats)]  # the same for every column
    whole = score(rows)
    told = []
    for place, column in enumerate(rows.schema.columns):
        falls = np.array([whole - score(rows.permute_column(place, order)) for order in orders])
        told.append({"column": column.name, "fall": float(falls.mean()), "deviation": float(falls.std())})
    return told
