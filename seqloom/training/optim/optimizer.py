"""Optimisers, learning-rate schedules, and the update that never waits for the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.training.distributed.sharding import is_shard, named, placed, whole
from seqloom.training.optim.muon import Muon, between
from seqloom.training.settings import Training


def optimiser(model: nn.Module, settings: Training) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) or SGD, fused: the update is one pass over the parameters; or `Muon`.

    Averaged SGD (`Averaging`) steps as plain SGD does, without momentum.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    trained = trained or [nn.Parameter(torch.zeros(1))]  # of a model that is counted: torch wants something to train
    matrices = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.optimiser in ("sgd", "asgd"):
        fused = not any(map(is_shard, model.parameters()))  # torch has no fused SGD of shards
        made = torch.optim.SGD(groups, lr=settings.rate, momentum=settings.momentum, fused=fused)
        # Else a first step that is skipped leaves them as memory happened to be.
        for parameter in trained if settings.momentum else ():
            made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return made
    adam: dict[str, Any] = {"lr": settings.rate, "betas": (settings.momentum, settings.beta2), "eps": 1e-9}
    if settings.optimiser == "muon":
        if any(map(is_shard, trained)):
            raise SeqloomError("muon needs matrices in one piece: leave --shard out, or choose adamw")
        return Muon(between(model), groups, **adam)
    return torch.optim.AdamW(groups, fused=True, **adam)


def rate_at(step: int, settings: Training, progress: float, plateau: float = 1.0) -> float:
    """The learning rate of update `step` (the first is 1); `progress` is the share of the training done, 0 … 1."""
    warm = min(1.0, step / max(settings.warmup, 1))
    if settings.schedule == "inverse-sqrt":  # Vaswani et al. 2017, section 5.3
        return settings.rate * min(warm, (max(settings.warmup, 1) / step) ** 0.5)
    if settings.schedule == "cosine":  # Loshchilov & Hutter 2017, without restarts, down to a hundredth
        return settings.rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
    return settings.rate * warm * (plateau if settings.schedule == "plateau" else 1.0)


@dataclass
class Plateau:
    """Halves the rate after two validations without a better score."""

    factor: float = 1.0
    worse: int = 0

    def see(self, better: bool) -> None:
        self.worse = 0 if better else self.worse + 1
        if self.worse >= 2:
            self.factor, self.worse = self.factor / 2, 0


def apply(optimiser: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], count: float, clip: float) -> Tensor:
    """One update from gradients of a summed loss over `count` tokens; gives the gradient's norm, on the device.

    Dividing by the count, clipping and, where the norm is not finite, leaving everything as it was, are handed to the
    fused kernel as a scale and a flag: no further pass over the gradients, and nothing is read on the host. Of shards
    the norm is that of all ranks, so that all scale or skip alike.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    norm = (norm.full_tensor() if is_shard(norm) else norm) / count  # pyright: ignore[reportAttributeAccessIssue]
    scale = torch.full_like(norm, count)
    if clip:
        scale = scale * (norm / clip).clamp(min=1.0)
    bad = ~norm.isfinite()
    if not optimiser.defaults["fused"]:
        if not bool(bad):  # a wait, and the same answer on every rank
            for gradient in gradients:
                gradient.div_(float(scale))
            optimiser.step()
        return norm
    optimiser.grad_scale = torch.where(bad, 1.0, scale)  # pyright: ignore[reportAttributeAccessIssue]
    optimiser.found_inf = bad.to(norm.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    optimiser.step()
    return norm


def optimiser_state(optimiser: torch.optim.Optimizer, model: nn.Module, keep: bool = True) -> dict[str, Tensor]:
    """`optimiser.<what>.<parameter>` for every tensor the optimiser keeps."""
    states = (
        (f"optimiser.{what}.{name}", value)
        for name, parameter in named(model)
        for what, value in sorted(optimiser.state.get(parameter, {}).items())
        if isinstance(value, Tensor)
    )
    return whole(states, keep)


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(named(model))
    for key in tensors:
        if key.startswith("optimiser."):
            _, what, name = key.split(".", 2)
            value, parameter = tensors[key], parameters[name]
            # A count of steps is one number, kept whole by every rank.
            kept = placed(value, parameter) if value.shape == parameter.shape else value.to(parameter.device)
            optimiser.state[parameter][what] = kept.clone()


class Late:
    """Numbers on their way from the device: `read` waits for the step that made it, not for those launched since."""

    def __init__(self, value: Tensor) -> None:
        self.host = value
        self.arrived = None
        if value.is_cuda:
            self.host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self.host.copy_(value, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def wait(self) -> Tensor:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.host

    def read(self) -> float:
        return float(self.wait())
