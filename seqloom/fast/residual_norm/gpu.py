"""The way around a part and the norm that follows, in one kernel on a GPU: x + dropout(y), and the layer norm of that.

For compilers each is an operator of torch's own kind: they see one step and do not look inside. Called one by one, such
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

LONGEST = 8192  # vectors; beyond, a program would not hold one
Norm = tuple[Tensor, Tensor, float]  # weight, bias, ε


def fits(x: Tensor) -> bool:
    """Whether these kernels take x [..., dim]. Without gradients a step is too short for them to matter."""
    return runtime.usable(x) and torch.is_grad_enabled() and x.dtype.itemsize <= 4 and x.size(-1) <= LONGEST


def added(x: Tensor, y: Tensor, p: float, norm: Norm | None) -> tuple[Tensor, Tensor]:
    """x and y [..., dim] -> x + dropout(y) and its norm, in the precision that products take; nothing without one."""
    weight, bias, eps = norm or (None, None, 0.0)
    total, normed, _ = _call(x, y, weight, bias, runtime.seed(x, p), p, eps, _half(x))
    return total, normed


def stepped(x: Tensor, y: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """`added` where nothing is dropped and no gradients are wanted."""
    places = _places(x, y, norm[0], x.dtype)
    _launch(x, y, norm, None, places)
    return places[:2]


def normed(x: Tensor, norm: Norm) -> Tensor:
    """The norm of x [..., dim]."""
    weight, bias, eps = norm
    return _call(x, None, weight, bias, None, 0.0, eps, _half(x))[1]


def plainly(x: Tensor, y: Tensor, keep: Tensor | None, p: float, norm: Norm) -> tuple[Tensor, Tensor]:
    """`added` by torch's own operations, where it is known what was dropped."""
    total = x + (y if keep is None else y * keep / (1 - p))
    return total, F.layer_norm(total, total.shape[-1:], *norm)


def _call(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    return (torch.ops.seqloom.added if torch.compiler.is_compiling() else _Added.apply)(*given)


def _half(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _added(
    x: Tensor, y: Tensor | None, weight: Tensor | None, bias: Tensor | None, seed: Tensor | None, *how: Any
) -> tuple[Tensor, Tensor, Tensor]:
    p, eps, half = how
    places = _places(x, y, weight, half)
    norm = None if weight is None or bias is None else (weight, bias, eps)
    _launch(x, y, norm, None if seed is None else (seed, p), places)
    return places


def _launch(
    x: Tensor,
    y: Tensor | None,
    norm: Norm | None,
    drop: tuple[Tensor, float] | None,
    places: tuple[Tensor, Tensor, Tensor],
) -> None:
    from seqloom.fast.residual_norm import triton_kernels as added

    if x.numel():
        more = None if y is None else y.contiguous().view(-1, x.size(-1))
        added.forward((x.contiguous().view(-1, x.size(-1)), more), norm, drop, places)


def _places(x: Tensor, y: Tensor | None, weight: Tensor | None, half: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, its norm, and mean and 1/deviation; empty what is not asked for."""
    vectors = x.numel() // max(x.size(-1), 1)
    return (
        x.new_empty(x.shape if y is not None else 0),
        x.new_empty(x.shape if weight is not None else 0, dtype=half),
        x.new_empty((vectors, 2) if weight is not None else 0, dtype=torch.float32),
    )


def _added_slopes(
    by_total: Tensor | None, by_normed: Tensor | None, *kept_and_how: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes by x, where there was a norm; by y; by weight and bias, [2, dim]."""
    from seqloom.fast.residual_norm import triton_kernels as added

    *kept, seed, p, x, y = kept_and_how
    slopes = [None if part is None else part.contiguous() for part in (by_total, by_normed)]
    some = next(part for part in slopes if part is not None)
    by_x, by_y, _ = found = _slope_places(some, by_normed, x, y)
    dim, sums = some.size(-1), None
    if by_normed is not None:
        sums = some.new_empty(2, added.programs(some.numel() // dim), dim, dtype=torch.float32)
    if some.numel():
        flat = [None if part is None else part.view(-1, dim) for part in slopes]
        where = (by_x if by_x.numel() else None, by_y if by_y.numel() else None, sums)
        added.backward(tuple(flat), tuple(kept), None if seed is None else (seed, p), where)  # pyright: ignore
    return found if sums is None else (by_x, by_y, sums.sum(1))


def _slope_places(
    some: Tensor, by_normed: Tensor | None, x: torch.dtype, y: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        some.new_empty(some.shape if by_normed is not None else 0, dtype=x),
        some.new_empty(some.shape if y is not None else 0, dtype=y or x),
        some.new_empty((2, some.size(-1)) if by_normed is not None else 0, dtype=torch.float32),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, y, weight, bias, seed, p, _, _ = inputs
    total, _, kept = output
    ctx.set_materialize_grads(False)
    ctx.norm, ctx.p, ctx.y = weight is not None, p, None if y is None else y.dtype
    ctx.x, ctx.affine = x.dtype, None if weight is None else (weight.dtype, bias.dtype)
    norm = (x if y is None else total, kept, weight) if ctx.norm else (None, None, None)
    ctx.save_for_backward(*norm, seed)


def _back(
    slopes: Callable[..., Any], ctx: Any, by_total: Tensor | None, by_normed: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    total, kept, weight, seed = ctx.saved_tensors
    if ctx.y is None:
        by_total = None
    if by_total is None and by_normed is None:
        return (None,) * 8
    given = (by_total, by_normed, *((None,) * 3 if by_normed is None else (total, kept, weight)))
    by_x, by_y, by_affine = slopes(*given, seed, ctx.p, ctx.x, ctx.y)
    if by_normed is None:
        return by_total, by_y, *(None,) * 6  # pyright: ignore
    by_weight, by_bias = (part.to(dtype) for part, dtype in zip(by_affine, ctx.affine, strict=True))
    return by_x, by_y if ctx.y is not None else None, by_weight, by_bias, *(None,) * 4  # pyright: ignore


class _Added(torch.autograd.Function):
    forward, setup_context = staticmethod(_added), staticmethod(_keep)  # pyright: ignore
    backward = staticmethod(partial(_back, _added_slopes))  # pyright: ignore


_operator = torch.library.custom_op(
    "seqloom::added",
    _added,
    mutates_args=(),
    schema="(Tensor x, Tensor? y, Tensor? weight, Tensor? bias, Tensor? seed, float p, float eps, ScalarType half)"
    " -> (Tensor, Tensor, Tensor)",
)
_operator_slopes = torch.library.custom_op(
    "seqloom::added_slopes",
    _added_slopes,
    mutates_args=(),
    schema="(Tensor? by_total, Tensor? by_normed, Tensor? total, Tensor? kept, Tensor? weight, Tensor? seed, float p,"
    " ScalarType x, ScalarType? y) -> (Tensor, Tensor, Tensor)",
)
_operator.register_autograd(partial(_back, torch.ops.seqloom.added_slopes), setup_context=_keep)


@_operator.register_fake
def _(x: Tensor, y: Tensor | None, weight: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _places(x, y, weight, rest[-1])


@_operator_slopes.register_fake
def _(by_total: Tensor | None, by_normed: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    some = by_total if by_total is not None else by_normed
    assert some is not None
    return _slope_places(some, by_normed, *rest[-2:])
