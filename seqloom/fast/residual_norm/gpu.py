"""A residual connection and the norm after it in one kernel on a GPU: x + dropout(y), and the layer norm of the sum.

For torch.compile each is a custom operator, one opaque node of the graph. In eager mode, where a custom operator costs
the host more than the rest of a layer, it is an autograd function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.fast.triton_common import runtime

MAX_DIM = 8192  # a program holds one vector
Norm = tuple[Tensor, Tensor, float]  # weight, bias, ε


def supported(x: Tensor) -> bool:
    """For x [..., dim], in training only: without gradients they gain too little."""
    return runtime.usable(x) and torch.is_grad_enabled() and x.dtype.itemsize <= 4 and x.size(-1) <= MAX_DIM


def fused_residual_norm(x: Tensor, y: Tensor, p: float, norm: Norm | None) -> tuple[Tensor, Tensor]:
    """x and y [..., dim] -> x + dropout(y) and its norm in autocast's precision; empty without `norm`."""
    weight, bias, eps = norm or (None, None, 0.0)
    total, normed, _ = _apply(x, y, weight, bias, runtime.seed(x, p), p, eps, _output_dtype(x))
    return total, normed


def residual_norm_no_grad(x: Tensor, y: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """`fused_residual_norm` without dropout and without gradients."""
    outputs = _empty_outputs(x, y, norm[0], x.dtype)
    _launch(x, y, norm, None, outputs)
    return outputs[:2]


def fused_norm(x: Tensor, norm: Norm) -> Tensor:
    """The norm of x [..., dim]."""
    weight, bias, eps = norm
    return _apply(x, None, weight, bias, None, 0.0, eps, _output_dtype(x))[1]


def reference(x: Tensor, y: Tensor, keep: Tensor | None, p: float, norm: Norm) -> tuple[Tensor, Tensor]:
    """`fused_residual_norm` by torch's operators, with a known dropout mask `keep`."""
    total = x + (y if keep is None else y * keep / (1 - p))
    return total, F.layer_norm(total, total.shape[-1:], *norm)


def _apply(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return (torch.ops.seqloom.added if torch.compiler.is_compiling() else _ResidualNorm.apply)(*inputs)


def _output_dtype(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _residual_norm(
    x: Tensor, y: Tensor | None, weight: Tensor | None, bias: Tensor | None, seed: Tensor | None, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    p, eps, dtype = options
    outputs = _empty_outputs(x, y, weight, dtype)
    norm = None if weight is None or bias is None else (weight, bias, eps)
    _launch(x, y, norm, None if seed is None else (seed, p), outputs)
    return outputs


def _launch(
    x: Tensor,
    y: Tensor | None,
    norm: Norm | None,
    drop: tuple[Tensor, float] | None,
    outputs: tuple[Tensor, Tensor, Tensor],
) -> None:
    from seqloom.fast.residual_norm import triton_kernels

    if x.numel():
        flat_y = None if y is None else y.contiguous().view(-1, x.size(-1))
        triton_kernels.forward((x.contiguous().view(-1, x.size(-1)), flat_y), norm, drop, outputs)


def _empty_outputs(
    x: Tensor, y: Tensor | None, weight: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, its norm, and the norm's mean and 1/std; empty if not wanted."""
    vectors = x.numel() // max(x.size(-1), 1)
    return (
        x.new_empty(x.shape if y is not None else 0),
        x.new_empty(x.shape if weight is not None else 0, dtype=dtype),
        x.new_empty((vectors, 2) if weight is not None else 0, dtype=torch.float32),
    )


def _grads(
    grad_total: Tensor | None, grad_normed: Tensor | None, *saved_and_options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, if there was a norm; of y; of weight and bias, [2, dim]."""
    from seqloom.fast.residual_norm import triton_kernels

    *stats, seed, p, x, y = saved_and_options
    grads = [None if tensor is None else tensor.contiguous() for tensor in (grad_total, grad_normed)]
    given = next(tensor for tensor in grads if tensor is not None)
    grad_x, grad_y, _ = grad_outputs = _empty_grads(given, grad_normed, x, y)
    dim, sums = given.size(-1), None
    if grad_normed is not None:
        sums = given.new_empty(2, triton_kernels.programs(given.numel() // dim), dim, dtype=torch.float32)
    if given.numel():
        flat = [None if tensor is None else tensor.view(-1, dim) for tensor in grads]
        outputs = (grad_x if grad_x.numel() else None, grad_y if grad_y.numel() else None, sums)
        triton_kernels.backward(tuple(flat), tuple(stats), None if seed is None else (seed, p), outputs)  # pyright: ignore
    return grad_outputs if sums is None else (grad_x, grad_y, sums.sum(1))


def _empty_grads(
    given: Tensor, grad_normed: Tensor | None, x: torch.dtype, y: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        given.new_empty(given.shape if grad_normed is not None else 0, dtype=x),
        given.new_empty(given.shape if y is not None else 0, dtype=y or x),
        given.new_empty((2, given.size(-1)) if grad_normed is not None else 0, dtype=torch.float32),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, y, weight, bias, seed, p, _, _ = inputs
    total, _, stats = output
    ctx.set_materialize_grads(False)
    ctx.norm, ctx.p, ctx.y = weight is not None, p, None if y is None else y.dtype
    ctx.x, ctx.affine = x.dtype, None if weight is None else (weight.dtype, bias.dtype)
    norm = (x if y is None else total, stats, weight) if ctx.norm else (None, None, None)
    ctx.save_for_backward(*norm, seed)


def _backward(
    grads: Callable[..., Any], ctx: Any, grad_total: Tensor | None, grad_normed: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    total, stats, weight, seed = ctx.saved_tensors
    if ctx.y is None:
        grad_total = None
    if grad_total is None and grad_normed is None:
        return (None,) * 8
    inputs = (grad_total, grad_normed, *((None,) * 3 if grad_normed is None else (total, stats, weight)))
    grad_x, grad_y, grad_affine = grads(*inputs, seed, ctx.p, ctx.x, ctx.y)
    if grad_normed is None:
        return grad_total, grad_y, *(None,) * 6  # pyright: ignore
    grad_weight, grad_bias = (tensor.to(dtype) for tensor, dtype in zip(grad_affine, ctx.affine, strict=True))
    return grad_x, grad_y if ctx.y is not None else None, grad_weight, grad_bias, *(None,) * 4  # pyright: ignore


class _ResidualNorm(torch.autograd.Function):
    forward, setup_context = staticmethod(_residual_norm), staticmethod(_setup_context)  # pyright: ignore
    backward = staticmethod(partial(_backward, _grads))  # pyright: ignore


_operator = torch.library.custom_op(
    "seqloom::added",
    _residual_norm,
    mutates_args=(),
    schema="(Tensor x, Tensor? y, Tensor? weight, Tensor? bias, Tensor? seed, float p, float eps, ScalarType half)"
    " -> (Tensor, Tensor, Tensor)",
)
_backward_operator = torch.library.custom_op(
    "seqloom::added_slopes",
    _grads,
    mutates_args=(),
    schema="(Tensor? grad_total, Tensor? grad_normed, Tensor? total, Tensor? stats, Tensor? weight, Tensor? seed,"
    " float p, ScalarType x, ScalarType? y) -> (Tensor, Tensor, Tensor)",
)
_operator.register_autograd(partial(_backward, torch.ops.seqloom.added_slopes), setup_context=_setup_context)


@_operator.register_fake
def _(x: Tensor, y: Tensor | None, weight: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_outputs(x, y, weight, rest[-1])


@_backward_operator.register_fake
def _(grad_total: Tensor | None, grad_normed: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    given = grad_total if grad_total is not None else grad_normed
    assert given is not None
    return _empty_grads(given, grad_normed, *rest[-2:])
