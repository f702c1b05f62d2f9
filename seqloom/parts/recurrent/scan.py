"""h_t = a_t h_{t−1} + b_t for all t at once: a parallel scan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def scan(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """The states of a linear recurrence, from a and b [R, T, D] and the initial state [R, D].

    Pairs of steps are combined, then pairs of pairs: log2 T passes, no loop over time (Hillis & Steele 1986; for
    recurrent networks Martin & Cundy 2018, https://arxiv.org/abs/1709.04057). Training saves only a and h; the gradient
    is a scan from the end. Coefficients are multiplied directly: with |a| ≤ 1 nothing grows. The alternative, sums of
    logarithms (Heinsen 2023, https://arxiv.org/abs/2311.06281), is exact on paper, and the tests compare with it; but
    in float32 it subtracts sums that grow with the length, wrong in the third digit after some thousands of steps, and
    it needs positive b and h.
    """
    return _Scan.apply(a, b, start)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        first = torch.addcmul(b[:, 0], a[:, 0], start)
        h = _linear_scan(a, torch.cat([first[:, None], b[:, 1:]], 1))
        ctx.save_for_backward(a, h, start)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """grad h_t = grad_output_t + a_{t+1} grad h_{t+1}: the same recurrence from the end."""
        a, h, start = ctx.saved_tensors
        next_a = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
        grad_h = _linear_scan(next_a.flip(1), grad_output.flip(1)).flip(1)
        previous = torch.cat([start[:, None], h[:, :-1]], 1)
        return grad_h * previous, grad_h, grad_h[:, 0] * a[:, 0]


def _linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """After each pass a_t and b_t give h_t from h_{t − 2·span}."""
    span = 1
    while span < b.size(1):
        b = torch.cat([b[:, :span], torch.addcmul(b[:, span:], a[:, span:], b[:, :-span])], 1)
        a = torch.cat([a[:, :span], a[:, span:] * a[:, :-span]], 1)
        span *= 2
    return b
