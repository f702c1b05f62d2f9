"""Dropout (Srivastava et al. 2014), with cheap random numbers on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Each value is zero with probability p, else divided by what is left on average.

    On a CPU torch draws a 64-bit number a value, which takes longer than some of the layers between two dropouts. Here
    one such number serves four values, so that p is a multiple of 1/65536 there. Elsewhere, and where a compiler makes
    its own fused form, torch's function is used.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * _mask(x, p)


def onto(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """x + dropout(y), on a CPU in one pass."""
    if not training or p == 0.0 or x.device.type != "cpu" or x.dtype != y.dtype or torch.compiler.is_compiling():
        return x + dropout(y, p, training)
    return torch.addcmul(x, y, _mask(y, p))


def _mask(x: Tensor, p: float) -> Tensor:
    dropped = round(p * _STEPS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    keep = draws[: x.numel()].view(x.shape) >= dropped - _STEPS // 2
    return keep.to(x.dtype).mul_(_STEPS / max(_STEPS - dropped, 1))


def rectified(x: Tensor, p: float, training: bool) -> Tensor:
    """dropout(max(0, x)). What is above zero in the result was neither negative nor dropped, so the result itself says
    where gradients pass: no mask is kept, where torch would keep two."""
    if not training or p == 0.0 or x.device.type == "cpu":
        return dropout(x.relu(), p, training)
    return _Rectified.apply(x, p)


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y = dropout(x.relu(), p, True)
        ctx.save_for_backward(y)
        ctx.left = 1.0 - p
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        [y] = ctx.saved_tensors
        return slopes[0] * ((y > 0).to(slopes[0].dtype) / ctx.left), None


def locked(x: Tensor, p: float, training: bool) -> Tensor:
    """[R, T, D]: one mask a row for all its steps, so that a recurrent state is disturbed alike throughout
    (Gal & Ghahramani 2016, section 4)."""
    if not training or p == 0.0:
        return x
    keep = torch.empty(x.size(0), 1, x.size(2), dtype=x.dtype, device=x.device).bernoulli_(1 - p)
    return x * keep.div_(1 - p)
