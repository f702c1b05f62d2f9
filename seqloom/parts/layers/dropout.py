"""Dropout (Srivastava et al. 2014), faster on a CPU than torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Each value is zero with probability p, else divided by 1 − p.

    On a CPU torch draws a 64-bit number for every value, which takes longer than some layers. Here one such number
    serves four values, so p is rounded to a multiple of 1/65536. On other devices, and when compiling, torch's function
    is used.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * _mask(x, p)


def add_dropout(x: Tensor, y: Tensor, p: float, training: bool) -> Tensor:
    """x + dropout(y), on a CPU in one pass."""
    if not training or p == 0.0 or x.device.type != "cpu" or x.dtype != y.dtype or torch.compiler.is_compiling():
        return x + dropout(y, p, training)
    return torch.addcmul(x, y, _mask(y, p))


def _mask(x: Tensor, p: float) -> Tensor:
    dropped = round(p * _STEPS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    keep = draws[: x.numel()].view(x.shape) >= dropped - _STEPS // 2
    return keep.to(x.dtype).mul_(_STEPS / max(_STEPS - dropped, 1))


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """dropout(max(0, x)). The backward pass needs only the output: above zero, x was positive and not dropped. So no
    mask is saved, where torch would save two."""
    if not training or p == 0.0 or x.device.type == "cpu":
        return dropout(x.relu(), p, training)
    return _ReluDropout.apply(x, p)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y = dropout(x.relu(), p, True)
        ctx.save_for_backward(y)
        ctx.keep_probability = 1.0 - p
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        [y], grad_output = ctx.saved_tensors, grad_outputs[0]
        return grad_output * ((y > 0).to(grad_output.dtype) / ctx.keep_probability), None


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """[R, T, D]: one mask per row for all its steps (variational dropout: Gal & Ghahramani 2016, section 4)."""
    if not training or p == 0.0:
        return x
    keep = torch.empty(x.size(0), 1, x.size(2), dtype=x.dtype, device=x.device).bernoulli_(1 - p)
    return x * keep.div_(1 - p)
