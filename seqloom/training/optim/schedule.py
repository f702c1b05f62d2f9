"""Learning-rate schedules: SCHEDULES holds them by name. Free of torch, as the settings are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from seqloom.build import maker

if TYPE_CHECKING:
    from seqloom.training.settings import Training


class Point(NamedTuple):
    """Everything that a schedule depends on."""

    peak: float  # the learning rate at its highest
    warmup: int  # updates over which the learning rate rises to its peak
    step: int  # the number of the update; the first is 1
    progress: float  # the share of the training that is done, 0 … 1
    plateau: float = 1.0  # the factor of `Plateau`

    @property
    def warm(self) -> float:
        return min(1.0, self.step / max(self.warmup, 1))


def constant(at: Point) -> float:
    """peak · min(1, step / warmup) (the warm-up as in Goyal et al. 2017, section 2.2)."""
    return at.peak * at.warm


def inverse_sqrt(at: Point) -> float:
    """peak · min(step / warmup, √(warmup / step)) (Vaswani et al. 2017, section 5.3)."""
    return at.peak * min(at.warm, (max(at.warmup, 1) / at.step) ** 0.5)


def cosine(at: Point) -> float:
    """peak · ½ (1 + cos π progress), down to a hundredth of the peak (Loshchilov & Hutter 2017, without restarts)."""
    return at.peak * at.warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(at.progress, 1.0))))


def plateau(at: Point) -> float:
    """Constant, and halved whenever the validation score stops improving (as in He et al. 2016, section 3.4)."""
    return at.peak * at.warm * at.plateau


# Keywords of a schedule that have a default are its own settings: training.schedule.NAME.
SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "plateau": plateau,
}


def learning_rate_at(step: int, settings: Training, progress: float, factor: float = 1.0) -> float:
    """The learning rate of update `step` (the first is 1); `factor`: of the plateau."""
    at = Point(settings.learning_rate, settings.warmup, step, progress, factor)
    return maker(SCHEDULES, settings.schedule)(at)


@dataclass
class Plateau:
    """Halves its factor after two validations in a row without a better score."""

    factor: float = 1.0
    worse: int = 0

    def update(self, better: bool) -> None:
        self.worse = 0 if better else self.worse + 1
        if self.worse >= 2:
            self.factor, self.worse = self.factor / 2, 0
