"""Cells that look back over a tape, all steps by one kernel, on a GPU: a step at a time they are many small kernels,
and the host is slower than all of them. The plain twins are the cells' own steps, in
`parts/recurrent/self_attention_cells.py`.

Arithmetic is in float32. Not for compilers, which would look inside: they see the steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fast.triton_common import runtime

DIMS = (16, 32, 64, 128, 256)
WIDEST = 1024  # a small network that scores: entries of 4,096 numbers at a time have four of its answers
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def fits(x: Tensor, dim: int, width: int = 1) -> bool:
    """Whether all steps of x [R, T, input] go through a kernel; `width`: of the network that scores."""
    if not runtime.usable(x) or torch.compiler.is_compiling():
        return False
    return x.size(1) > 1 and dim in DIMS and width <= WIDEST and x.dtype in FLOATS


def attentive(gates: Tensor, recurrent: Tensor, first: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """h_t = tanh(g_t + U c_{t−1}), c_t = Σ_s softmax(scale · h_t·h_s)_s h_s over s ≤ t: gates [R, T, dim], U [dim, dim]
    and c_0 [R, dim] -> c and h, each [R, T, dim]."""
    mixed, tape = _Attentive.apply(*_full(gates, recurrent, first), scale)  # pyright: ignore
    return mixed[:, 1:].contiguous().to(gates.dtype), tape.to(gates.dtype)


def lstmn(
    gates: Tensor, asks: Tensor, first: tuple[Tensor, ...], recurrent: Tensor, score: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The LSTMN (Cheng et al. 2016, equations 4 to 9) from W x + b [R, T, 4·dim] and W_x x + b [R, T, width].

    `first`: h, c and h̃ [R, dim], and whether h and c are an entry [R, 1]. `score`: W_h and W_h̃ [width, dim], and v
    [width]. Gives [h; c] of the entries before every step and after the last, [R, T + 1, 2·dim], the keys of all but
    the last, [R, T, width], and the last h̃ [R, dim].
    """
    values, keys, asked = _Lstmn.apply(*_full(gates, asks, *first, recurrent, *score))  # pyright: ignore
    return values.to(gates.dtype), keys.to(gates.dtype), asked.to(gates.dtype)


def _full(*tensors: Tensor) -> list[Tensor]:
    return [tensor.float().contiguous() for tensor in tensors]


class _Attentive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, first: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        from seqloom.fast.lookback import attentive_triton as tape

        mixed, entries, totals = tape.forward(gates, recurrent, first, scale)
        ctx.save_for_backward(recurrent, mixed, entries, totals)
        ctx.scale = scale
        return mixed, entries

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_mixed: Tensor, by_tape: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.lookback import attentive_triton as tape

        recurrent, *kept = ctx.saved_tensors
        added = by_tape.clone(memory_format=torch.contiguous_format)
        by_gates = tape.backward(by_mixed.contiguous(), added, recurrent, tuple(kept), ctx.scale)
        by_first = by_mixed[:, 0] + by_gates[:, 0] @ recurrent
        return by_gates, _over(by_gates, kept[0][:, :-1]), by_first, None


class _Lstmn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, asks: Tensor, *given: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore
        from seqloom.fast.lookback import lstmn_triton

        first, weights = given[:4], given[4:]
        walked = lstmn_triton.forward(gates, asks, first, lstmn_triton.Weights(*weights))
        ctx.save_for_backward(first[3], *weights, *walked)
        return walked.values, walked.keys, walked.read[:, -1, : first[2].size(1)].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.lookback import lstmn_triton

        there, weights = ctx.saved_tensors[0], lstmn_triton.Weights(*ctx.saved_tensors[1:5])
        walked = lstmn_triton.Walked(*ctx.saved_tensors[5:])
        by = lstmn_triton.Slopes(*(slope.clone(memory_format=torch.contiguous_format) for slope in slopes))
        by_gates, by_queries, by_score = lstmn_triton.backward(by, there, weights, walked)
        by_h, by_c = by.values[:, 0].chunk(2, 1)
        by_first = (by_h + by.keys[:, 0] @ weights.key, by_c, by_queries[:, 0] @ weights.query, None)
        h, asked = walked.values.chunk(2, 2)[0], walked.read.chunk(2, 2)[0]
        by_inner, by_query = _over(by_gates, asked[:, 1:]), _over(by_queries, asked[:, :-1])
        return by_gates, by_queries, *by_first, by_inner, _over(by.keys, h[:, :-1]), by_query, by_score.sum(0)


def _over(slope: Tensor, x: Tensor) -> Tensor:
    """The slope by a matrix that took x [R, T, in] to what has `slope` [R, T, out]: one product over all steps."""
    return slope.flatten(0, 1).mT @ x.flatten(0, 1)
