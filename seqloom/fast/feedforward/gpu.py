"""What stands between the two matrices of a feed-forward network, in one kernel on a GPU: dropout(max(0, x)) or
dropout(gelu(x)). A mask is not kept, and the way back makes the slope of the bias before it as well.

For compilers it is an operator of torch's own kind: they see one step and do not look inside. Called one by one, such
operators take the host longer than all the rest of a layer, so there it is a function with a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.fast.triton_common import runtime


def fits(x: Tensor) -> bool:
    """Whether the kernel takes what is made of x. Without gradients a step is too short for it to matter."""
    return runtime.usable(x) and torch.is_grad_enabled() and x.dtype.itemsize <= 4


def activated(x: Tensor, bias: Tensor | None, p: float, gelu: bool) -> Tensor:
    """x [..., dim] -> dropout(gelu(x)), or of max(0, x). `bias` [dim] is in x already, but its slope is made here; see
    `Linear.apart`."""
    call = torch.ops.seqloom.activated if torch.compiler.is_compiling() else _Activated.apply
    return call(x, bias, runtime.seed(x, p), p, gelu)


def plainly(x: Tensor, keep: Tensor | None, p: float, gelu: bool) -> Tensor:
    """`activated` by torch's own operations, where it is known what was dropped."""
    y = F.gelu(x) if gelu else x.relu()
    return y if keep is None else y * keep / (1 - p)


def _activated(x: Tensor, bias: Tensor | None, seed: Tensor | None, p: float, gelu: bool) -> Tensor:
    from seqloom.fast.feedforward import triton_kernels as activated

    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        dim, drop = x.size(-1), None if seed is None else (seed, p)
        activated.forward(x.view(-1, dim), y.view(-1, dim), gelu, drop)
    return y


def _slopes(
    slope: Tensor, kept: Tensor, seed: Tensor | None, p: float, gelu: bool, sums: bool
) -> tuple[Tensor, Tensor]:
    """By x, and by the bias, in float32."""
    from seqloom.fast.feedforward import triton_kernels as activated
    from seqloom.fast.triton_common import column_sums

    dim, kept = kept.size(-1), kept.contiguous()
    found, by_bias = _slope_places(kept, sums)
    if not kept.numel():
        return found, by_bias.zero_()
    flat = [part.view(-1, dim) for part in (slope.contiguous(), kept, found)]
    parts = kept.new_empty(column_sums.programs(*flat[0].shape), dim, dtype=torch.float32) if sums else None
    activated.backward((flat[0], flat[1]), (flat[2], parts), gelu, None if seed is None else (seed, p))
    return found, by_bias if parts is None else parts.sum(0)


def _slope_places(kept: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    return kept.new_empty(kept.shape), kept.new_empty(kept.size(-1) if sums else 0, dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, seed, ctx.p, ctx.gelu = inputs
    ctx.save_for_backward(x if ctx.gelu else output, seed)
    ctx.bias = None if bias is None else bias.dtype


def _back(slopes: Callable[..., Any], ctx: Any, slope: Tensor) -> tuple[Any, ...]:
    by_x, by_bias = slopes(slope, *ctx.saved_tensors, ctx.p, ctx.gelu, ctx.bias is not None)
    return by_x, None if ctx.bias is None else by_bias.to(ctx.bias), None, None, None


class _Activated(torch.autograd.Function):
    forward, setup_context = staticmethod(_activated), staticmethod(_keep)  # pyright: ignore
    backward = staticmethod(partial(_back, _slopes))  # pyright: ignore


_operator = torch.library.custom_op(
    "seqloom::activated",
    _activated,
    mutates_args=(),
    schema="(Tensor x, Tensor? bias, Tensor? seed, float p, bool gelu) -> Tensor",
)
_operator_slopes = torch.library.custom_op(
    "seqloom::activated_slopes",
    _slopes,
    mutates_args=(),
    schema="(Tensor slope, Tensor kept, Tensor? seed, float p, bool gelu, bool sums) -> (Tensor, Tensor)",
)
_operator.register_autograd(partial(_back, torch.ops.seqloom.activated_slopes), setup_context=_keep)
_operator.register_fake(lambda x, *_: x.new_empty(x.shape))
_operator_slopes.register_fake(lambda slope, kept, *how: _slope_places(kept, how[-1]))
