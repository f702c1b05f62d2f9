"""Corpus scores as sums over examples, and a function of these sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CorpusScore:
    """A corpus score as its sufficient statistics, so that resampling never counts an n-gram or an edit twice."""

    table: np.ndarray  # [N, K]: what each example adds
    finish: Callable[[np.ndarray], float]  # K sums → the score in percent
    signature: str  # how to reproduce the score

    @property
    def score(self) -> float:
        """The score over all examples; not a number where there is none."""
        return self.finish(self.table.sum(axis=0)) if len(self.table) else float("nan")
