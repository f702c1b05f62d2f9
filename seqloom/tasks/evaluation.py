"""What every evaluation says, whatever the task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """Scores in percent (perplexity is a number of choices) with their 95 % intervals and signatures."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    signature: dict[str, str]
    count: int
    predictions: list[str]
    notes: tuple[str, ...] = ()  # what the user should know, in sentences

    def to_json(self) -> dict[str, Any]:
        return {
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in self.intervals.items()},
            "signature": self.signature,
            "count": self.count,
        }


def _finite(value: float) -> float | None:
    """JSON has no word for what is not a number."""
    return value if math.isfinite(value) else None
