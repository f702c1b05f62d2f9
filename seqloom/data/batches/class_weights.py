"""Class weights: the weight of each label in the loss."""

from __future__ import annotations

import numpy as np

from seqloom.data.batches.labels import Target
from seqloom.errors import SeqloomError, known


def class_weights(choice: str, target: Target, counts: np.ndarray) -> np.ndarray | None:
    """[labels]. `way`: "none"; "balanced", N / (labels · count), equal weight of all labels (King & Zeng 2001);
    or as in "spam=3,ham=1", with 1 for the others."""
    if "=" not in choice:
        known(choice, ("none", "balanced"), "way to weigh labels")
    if choice == "none":
        return None
    if target.kind == "number":
        raise SeqloomError(f"class_weights {choice!r} are for labels; a number has none")
    if choice == "balanced":
        return (counts.sum() / (len(counts) * np.maximum(counts, 1))).astype(np.float32)
    weights = np.ones(target.size, np.float32)
    for part in choice.split(","):
        name, _, number = part.rpartition("=")
        place = target.names.index(known(name.strip(), target.names, "label in class_weights"))
        try:
            weight = float(number)
        except ValueError:
            raise SeqloomError(
                f"class_weights {choice!r}: {number!r} is no number; write label=weight,label=weight"
            ) from None
        if not 0 <= weight <= float(np.finfo(np.float32).max):
            raise SeqloomError(
                f"class_weights {choice!r}: a weight is a finite number of 0 or more, not {number.strip()}"
            )
        weights[place] = weight
    return weights
