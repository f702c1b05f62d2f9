"""Optimisers, learning-rate schedules, and the update that never waits for the host."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqloom.training.settings import Training


def optimiser(model: nn.Module, settings: Training) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) or SGD with momentum, fused: the update is one pass over the parameters."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.optimiser == "sgd":
        made = torch.optim.SGD(groups, lr=settings.rate, momentum=settings.momentum, fused=True)
        for parameter in model.parameters():  # else a first step that is skipped leaves them as memory happened to be
            made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return made
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(settings.momentum, 0.98), eps=1e-9, fused=True)


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


def apply(optimiser: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], count: int, clip: float) -> Tensor:
    """One update from gradients of a summed loss over `count` tokens; gives the gradient's norm, on the device.

    Dividing by the count, clipping and, where the norm is not finite, leaving everything as it was, are handed to the
    fused kernel as a scale and a flag: no further pass over the gradients, and nothing is read on the host.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients) / count
    scale = torch.full_like(norm, count)
    if clip:
        scale = scale * (norm / clip).clamp(min=1.0)
    bad = ~norm.isfinite()
    optimiser.grad_scale = torch.where(bad, 1.0, scale)  # pyright: ignore[reportAttributeAccessIssue]
    optimiser.found_inf = bad.to(norm.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    optimiser.step()
    return norm


class Late:
    """A number on its way from the device: `read` waits for the step that made it, not for those launched since."""

    def __init__(self, value: Tensor) -> None:
        self.host = value
        self.arrived = None
        if value.is_cuda:
            self.host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self.host.copy_(value, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def read(self) -> float:
        if self.arrived is not None:
            self.arrived.synchronize()
        return float(self.host)
