"""Edit distance of prediction and reference: for phoneme, character and word error rates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.errors import SeqloomError


@dataclass(frozen=True)
class EditCounts:
    """Edits and reference lengths per example; both add up over examples."""

    errors: np.ndarray  # [N] int
    lengths: np.ndarray  # [N] int, of the reference that was chosen

    @property
    def rate(self) -> float:
        """Σ errors / Σ lengths, a fraction that may exceed one."""
        return ratio(float(self.errors.sum()), float(self.lengths.sum()))


def ratio(errors: float, length: float) -> float:
    """errors / length. Where all references are empty it is the number of insertions, as in jiwer, and never 0/0."""
    return errors / max(length, 1.0)


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966)."""
    fast = _rapidfuzz()
    if fast is None:
        return edit_distance_plain(a, b)
    if isinstance(a, str) and isinstance(b, str):
        return fast(a, b)
    # rapidfuzz compares hashes of list entries, and takes "a" for 97; numbering the tokens preserves `==`.
    numbers: dict[Hashable, int] = {}
    return fast(
        [numbers.setdefault(token, len(numbers)) for token in a],
        [numbers.setdefault(token, len(numbers)) for token in b],
    )


def edit_distance_plain(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The plain twin: d[i, j] = min(d[i−1, j] + 1, d[i, j−1] + 1, d[i−1, j−1] + [aᵢ ≠ bⱼ]) (Wagner and Fischer 1974).

    Only the previous row is needed.
    """
    above = list(range(len(b) + 1))
    for i, token in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (token != other)))
        above = row
    return above[-1]


def error_rate(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> EditCounts:
    """Edits against the closest reference, per example; `.rate` is Σ errors / Σ lengths of the chosen references.

    The closest is the one with the fewest edits; among equals the shorter, which never flatters the rate.
    """
    check_pairs(predictions, references)
    chosen = [
        min((edit_distance(prediction, reference), len(reference)) for reference in several)
        for prediction, several in zip(predictions, references, strict=True)
    ]
    pairs = np.array(chosen, dtype=np.int64).reshape(-1, 2)  # keeps the shape without examples
    return EditCounts(pairs[:, 0], pairs[:, 1])


def check_pairs(predictions: Sequence, references: Sequence) -> None:
    """As many predictions as references, and at least one reference each."""
    if len(predictions) != len(references):
        raise SeqloomError(
            f"{len(predictions)} predictions but {len(references)} references; each prediction needs its references."
        )
    for row, several in enumerate(references):
        if len(several) == 0:
            raise SeqloomError(f"prediction {row + 1} has no reference; give one or more.")


@functools.cache  # a failed import would search the path every time
def _rapidfuzz() -> Callable[..., int] | None:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return None
    return Levenshtein.distance
