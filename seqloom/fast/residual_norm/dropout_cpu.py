"""Dropout on a CPU with 16 random bits a value.

Torch draws a 64-bit number for every value, which takes longer than some layers. Here one such number serves four
values, so p is rounded to a multiple of 1/65536.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.layers.dropout import add_dropout, dropout

_STEPS = 1 << 16


def _supported(x: Tensor, p: float, training: bool) -> bool:
    return training and p > 0.0 and x.device.type == "cpu"


@twin_of(dropout, _supported)
def dropout_cpu(x: Tensor, p: float, training: bool) -> Tensor:
    return x * _mask(x, p)


def _add_supported(x: Tensor, y: Tensor, p: float, training: bool) -> bool:
    return _supported(x, p, training) and x.dtype == y.dtype


@twin_of(add_dropout, _add_supported)
def add_dropout_cpu(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """In one pass over x and y."""
    return torch.addcmul(x, y, _mask(y, p))


def _mask(x: Tensor, p: float) -> Tensor:
    dropped = round(p * _STEPS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    keep = draws[: x.numel()].view(x.shape) >= dropped - _STEPS // 2
    return keep.to(x.dtype).mul_(_STEPS / max(_STEPS - dropped, 1))
