"""Weight averaging: means over updates, which are validated and saved while training goes on from the last weights.

NT-ASGD (Merity et al. 2018, arXiv:1708.02182, algorithm 1): plain SGD until a trigger fires, and from then on the
mean of all its weights (Polyak & Juditsky 1992).

`ema`, for any optimizer: from the first update on, mean ← d mean + (1 − d) weights (Kingma & Ba 2015, section 7.2).
For the first 1/(1 − d) updates it is the plain mean of all, so that the beginning is soon forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.training.distributed.sharding import is_shard, parameters_by_name, place_like, unshard
from seqloom.training.settings import Training


class Averaging:
    """The trigger and, once it has fired, the mean of the weights. It fires for optimizers that average alone (asgd);
    with `ema` the mean begins at once.

    It covers the trained parameters, in fp32, by name; of a sharded one each rank has its shard. The weights at which
    the trigger fires are the first in the mean.
    """

    def __init__(self, model: nn.Module, settings: Training, device: torch.device) -> None:
        self.trigger = settings.asgd_patience if settings.optimizer_entry.averages else None
        self.decay = settings.ema or None
        self.trained = {name: parameter for name, parameter in parameters_by_name(model) if parameter.requires_grad}
        self.scores: list[float] = []  # of validations before the trigger; lower is better
        self.means: dict[str, Tensor] = {}
        # Number of weights in the mean; on the device, since skipped updates are known there.
        self.count = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def started(self) -> bool:
        return bool(self.means)

    def after_validation(self, score: float) -> bool:
        """After a validation: whether the trigger fires now.

        It does if the score is worse than the best one of more than `trigger` validations ago, as in the
        authors' code and corrected algorithm 1; the first print had the best of the last few.
        """
        if self.trigger is None or self.started:
            return False
        fires = score > min(self.scores[: -self.trigger], default=math.inf)
        self.scores.append(score)
        if fires:
            self._start()
            self.count += 1
        return fires

    def _start(self) -> None:
        self.means = {name: parameter.detach().clone() for name, parameter in self.trained.items()}

    @torch.no_grad()
    def add(self, finite: Tensor) -> None:
        """Add the weights after an update; nothing where its gradient was not `finite`."""
        if not self.started:
            if self.decay is None:
                return
            self._start()
        self.count += finite
        share = finite / self.count.clamp(min=1)
        if self.decay is not None:
            share = torch.maximum(share, finite * (1 - self.decay))
        for mean, parameter in self._pairs():
            mean.lerp_(parameter, share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the mean as weights within the block."""
        if not self.started:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """Swap values, not tensors: optimizers, DDP, FSDP and CUDA graphs hold the tensors."""
        for mean, parameter in self._pairs():
            weights = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(weights)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((_own(self.means[name]), _own(parameter)) for name, parameter in self.trained.items())

    def state(self, wanted: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """`mean.<parameter>`, whole, and the rest as JSON."""
        tensors = unshard(((f"mean.{name}", mean) for name, mean in self.means.items()), wanted)
        return tensors, {"scores": list(self.scores), "count": int(self.count)}

    def restore(self, tensors: Mapping[str, Tensor], values: dict[str, Any] | None) -> None:
        """`values` None: a checkpoint of a version without averaging."""
        if values is None:
            return
        self.scores = list(values["scores"])
        if values["count"] or any(f"mean.{name}" in tensors for name in self.trained):
            saved = ((name, parameter, tensors[f"mean.{name}"]) for name, parameter in self.trained.items())
            self.means = {name: place_like(mean, parameter).clone() for name, parameter, mean in saved}
            self.count += values["count"]


def _own(tensor: Tensor) -> Tensor:
    """The shard of this rank."""
    return tensor.to_local() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]
