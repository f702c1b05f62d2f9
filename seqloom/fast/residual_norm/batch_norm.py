"""Batch norm in training by torch's kernel, which supports no padding and needs at least two positions."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.layers.norm import EPS, BatchNorm


def _supported(self: BatchNorm, x: Tensor, lengths: Tensor | None = None) -> bool:
    return self.training and self.weight.requires_grad and lengths is None and x.numel() > len(self.mean)


@twin_of(BatchNorm.forward, _supported, compiles=True)
def fused_batch_norm(self: BatchNorm, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    flat, running = x.reshape(-1, x.size(-1)), (self.mean, self.variance)
    return torch.batch_norm(flat, self.weight, self.bias, *running, True, self.momentum, EPS, False).view(x.shape)
