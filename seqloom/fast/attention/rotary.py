"""Rotary positions as a complex product: one pass over memory, where written out a rotation is six."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.positions.rotary import rotate


def supported(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    return x.device.type in ("cpu", "cuda")


@twin_of(rotate, supported)
def complex_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    exact = torch.promote_types(x.dtype, torch.float32)
    pairs = torch.view_as_complex(x.to(exact).unflatten(-1, (-1, 2)))
    turns = torch.complex(cos.to(exact), sin.to(exact))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)
