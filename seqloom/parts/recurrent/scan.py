"""h_t = a_t h_{t−1} + b_t for all t at once: a parallel scan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def scan(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """The states of a linear recurrence, from a and b [R, T, D] and the state before the first step [R, D].

    Steps are joined two by two, then four by four: log2 T passes over all of them, no loop over time (Hillis & Steele
    1986; for recurrent networks Martin & Cundy 2018, https://arxiv.org/abs/1709.04057). For training only a and h are
    kept, and its gradient is a scan from the end. Factors are multiplied as they are: with |a| ≤ 1 nothing grows,
    whatever the length. The other known way, sums of logarithms (Heinsen 2023, https://arxiv.org/abs/2311.06281), is
    right in exact numbers, and the tests compare with it; but in float32 it takes differences of sums that grow with
    the length, which after some thousands of steps are wrong in the third digit, and it wants b and h to be positive.
    """
    return _Scan.apply(a, b, start)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        first = torch.addcmul(b[:, 0], a[:, 0], start)
        h = _joined(a, torch.cat([first[:, None], b[:, 1:]], 1))
        ctx.save_for_backward(a, h, start)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The slope of h_t is its own and a_{t+1} times that of h_{t+1}: the same recurrence from the end."""
        a, h, start = ctx.saved_tensors
        after = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
        slope = _joined(after.flip(1), slope.flip(1)).flip(1)
        before = torch.cat([start[:, None], h[:, :-1]], 1)
        return slope * before, slope, slope[:, 0] * a[:, 0]


def _joined(a: Tensor, b: Tensor) -> Tensor:
    """After the pass for `reach`, a_t and b_t say how h_t follows from h_{t − 2·reach}."""
    reach = 1
    while reach < b.size(1):
        b = torch.cat([b[:, :reach], torch.addcmul(b[:, reach:], a[:, reach:], b[:, :-reach])], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], 1)
        reach *= 2
    return b
