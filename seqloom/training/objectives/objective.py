"""The waist between batches and the loop: an objective turns a batch into a `Loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from seqloom.parts.state import State


class Loss(NamedTuple):
    """A sum and a count, so that ranks and micro-batches add up."""

    total: Tensor  # summed over real target tokens
    count: int  # of these tokens: known on the host, since lengths are there too
    carried: State = None  # the state for the next batch, detached; only where batches continue one another


class Objective(nn.Module):
    """A batch to its loss. The model that is trained is `model`.

    Keywords of the constructor that are called as a setting of `training` (label_smoothing, r_drop) get its value; the
    others that have a default are the objective's own settings. In evaluation mode the loss is the likelihood alone:
    smoothing, penalties and weights of one's own belong to training.
    """

    tasks: ClassVar[tuple[str, ...]]  # that it is for; the first entry of the table that fits a task is its usual one
    targets: ClassVar[
        tuple[str, ...]
    ] = ()  # kinds of target it is for, where a task has several: label, labels, number
    in_nats: ClassVar[bool] = True  # whether the loss is a negative log-likelihood

    model: Any  # of the kind that the task trains
    __call__: Callable[..., Loss]

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> Loss:
        raise NotImplementedError


def unwrap(objective: nn.Module) -> Any:
    """The objective itself, without the wrapper for several processes (DDP)."""
    return getattr(objective, "module", objective)
