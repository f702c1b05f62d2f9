"""Queries, keys and values out of the one product that made them. On a GPU their slopes are put side by side again in
one kernel, which makes the slope of the product's bias as well."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqloom.fast.triton_common import runtime


def fits(x: Tensor) -> bool:
    """Whether it goes that way for what is made of x. Compilers want no operator that hands out shares of what it got,
    and without gradients there is nothing to gain."""
    here = runtime.usable(x) and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return here and x.dtype.itemsize <= 4


def parted(packed: Tensor, bias: Tensor | None, heads: int) -> list[Tensor]:
    """[B, T, 3·heads·D] -> three of [B, heads, T, D], all of them shares of what is given. `bias` [3·heads·D] is in it
    already, but its slope is made here; see `Linear.apart`."""
    return plainly(packed, heads) if bias is None else list(_Parted.apply(packed, bias, heads))


def plainly(packed: Tensor, heads: int) -> list[Tensor]:
    """The same by torch's own operations, where slopes are put side by side and summed one after the other."""
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in packed.chunk(3, -1)]


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, ...]:
        ctx.bias = bias.dtype
        return tuple(plainly(packed, heads))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.attention import qkv_triton as packed
        from seqloom.fast.triton_common import column_sums

        q, k, v = (part if part.stride(-1) == 1 else part.contiguous() for part in slopes)
        b, heads, t, dim = q.shape
        found = q.new_empty(b, t, 3 * heads * dim)
        sums = q.new_empty(column_sums.programs(b * t, heads * dim, 3), 3 * heads * dim, dtype=torch.float32)
        if found.numel():
            packed.pack((q, k, v), found, sums)
        return found, sums.sum(0).to(ctx.bias), None
