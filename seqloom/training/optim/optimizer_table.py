"""OPTIMIZERS: all optimizers in one literal table, with what the settings and the loop must know of each.

Free of torch, so that settings and the command line can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqloom.build import Functions


@dataclass(frozen=True)
class Optimizer:
    """`make(model, groups, settings)` gives a torch optimizer, whose state must be tensors: only those are saved. Its
    keywords with a default are the optimizer's own settings; it may also read any setting of the training."""

    make: str | Callable[..., Any]  # "module:function"
    momentum: bool = True  # False: it has none, and training.momentum is 0.0
    averages: bool = False  # its weights are averaged once scores get worse (`Averaging`), by which the best is chosen


OPTIMIZERS = {
    "adamw": Optimizer("seqloom.training.optim.optimizer:adamw"),
    "muon": Optimizer("seqloom.training.optim.optimizer:muon"),
    "sgd": Optimizer("seqloom.training.optim.optimizer:sgd"),
    "asgd": Optimizer("seqloom.training.optim.optimizer:asgd", momentum=False, averages=True),
}
MAKERS = Functions(OPTIMIZERS, lambda optimizer: optimizer.make)
