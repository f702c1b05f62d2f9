"""Means of the weights over updates, which are scored and kept while training goes on from the last weights.

NT-ASGD (Merity et al. 2018, arXiv:1708.02182, algorithm 1): plain SGD until a trigger fires, and from then on its
answer is the mean of all points that it passes through (Polyak & Juditsky 1992).

`ema`, for any optimiser: from the first update on, mean ← d mean + (1 − d) weights (Kingma & Ba 2015, section 7.2).
While fewer than 1/(1 − d) updates are done, the plain mean of them all, so that the beginning is soon forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.training.distributed.sharding import is_shard, named, placed, whole
from seqloom.training.settings import Training


class Averaging:
    """The trigger and, once it has fired, the mean of the weights. Of any optimiser but asgd it never fires; with `ema`
    the mean begins by itself.

    The mean is that of what is trained: every parameter once, in fp32, by its own name; of a sharded one each rank has
    its shard. The weights at which the trigger fires are the first of it.
    """

    def __init__(self, model: nn.Module, settings: Training, device: torch.device) -> None:
        self.trigger = settings.trigger if settings.optimiser == "asgd" else None
        self.decay = settings.ema or None
        self.trained = {name: parameter for name, parameter in named(model) if parameter.requires_grad}
        self.scores: list[float] = []  # of the validations until the trigger; lower is better
        self.means: dict[str, Tensor] = {}
        # Of the weights in the mean; on the device, where it is known whether an update was one.
        self.count = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def begun(self) -> bool:
        return bool(self.means)

    def see(self, score: float) -> bool:
        """One more validation: whether the trigger fires now.

        It does if the score is worse than the best one of more than `trigger` validations ago, which is algorithm 1 as
        its authors run and amended it; the first print had the best of the last few.
        """
        if self.trigger is None or self.begun:
            return False
        fires = score > min(self.scores[: -self.trigger], default=math.inf)
        self.scores.append(score)
        if fires:
            self._begin()
            self.count += 1
        return fires

    def _begin(self) -> None:
        self.means = {name: parameter.detach().clone() for name, parameter in self.trained.items()}

    @torch.no_grad()
    def add(self, finite: Tensor) -> None:
        """The weights after an update, if it was one: where its gradient was not `finite`, nothing is added."""
        if not self.begun:
            if self.decay is None:
                return
            self._begin()
        self.count += finite
        share = finite / self.count.clamp(min=1)
        if self.decay is not None:
            share = torch.maximum(share, finite * (1 - self.decay))
        for mean, parameter in self._pairs():
            mean.lerp_(parameter, share)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The mean in the place of the weights, for as long as the block lasts."""
        if not self.begun:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """By values, not by pointers: optimisers, DDP, FSDP and recorded graphs know where the weights are."""
        for mean, parameter in self._pairs():
            weights = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(weights)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((_own(self.means[name]), _own(parameter)) for name, parameter in self.trained.items())

    def state(self, keep: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """`mean.<parameter>`, whole, and the rest as JSON."""
        tensors = whole(((f"mean.{name}", mean) for name, mean in self.means.items()), keep)
        return tensors, {"scores": list(self.scores), "count": int(self.count)}

    def restore(self, tensors: Mapping[str, Tensor], values: dict[str, Any] | None) -> None:
        """None: of a checkpoint from before there was averaging."""
        if values is None:
            return
        self.scores = list(values["scores"])
        if values["count"] or any(f"mean.{name}" in tensors for name in self.trained):
            kept = ((name, parameter, tensors[f"mean.{name}"]) for name, parameter in self.trained.items())
            self.means = {name: placed(mean, parameter).clone() for name, parameter, mean in kept}
            self.count += values["count"]


def _own(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]
