"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import accelerated


@accelerated
def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """In training each value is zero with probability p, else divided by 1 − p."""
    return F.dropout(x, p) if training else x


@accelerated
def add_dropout(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """x + dropout(y)"""
    return x + dropout(y, p, training)


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """[R, T, D]: one mask per row for all its steps (variational dropout: Gal & Ghahramani 2016, section 4)."""
    if not training or p == 0.0:
        return x
    keep = torch.empty(x.size(0), 1, x.size(2), dtype=x.dtype, device=x.device).bernoulli_(1 - p)
    return x * keep.div_(1 - p)
