"""Queries, keys and values split from their common projection. On a GPU one kernel concatenates their gradients and
sums the gradient of the projection's bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqloom.fast.triton_common import runtime


def supported(x: Tensor) -> bool:
    """For projections of x, in training only. Not under compilers: they take no operator that returns views of its
    input."""
    usable = runtime.usable(x) and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return usable and x.dtype.itemsize <= 4


def split_qkv(qkv: Tensor, bias: Tensor | None, heads: int) -> list[Tensor]:
    """[B, T, 3·heads·D] -> three views [B, heads, T, D]. `bias` [3·heads·D] is already in it, but its gradient is
    made here; see `defer_bias_grad`."""
    return reference(qkv, heads) if bias is None else list(_SplitQkv.apply(qkv, bias, heads))


def reference(qkv: Tensor, heads: int) -> list[Tensor]:
    """The same by torch's operators, which concatenate and sum gradients in separate kernels."""
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1)]


class _SplitQkv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, ...]:
        ctx.bias = bias.dtype
        return tuple(reference(qkv, heads))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.attention import qkv_triton
        from seqloom.fast.triton_common import column_sums

        q, k, v = (part if part.stride(-1) == 1 else part.contiguous() for part in grad_outputs)
        b, heads, t, dim = q.shape
        grad_qkv = q.new_empty(b, t, 3 * heads * dim)
        sums = q.new_empty(column_sums.programs(b * t, heads * dim, 3), 3 * heads * dim, dtype=torch.float32)
        if grad_qkv.numel():
            qkv_triton.concat_grads((q, k, v), grad_qkv, sums)
        return grad_qkv, sums.sum(0).to(ctx.bias), None
