"""Softmax attention for short rows, on a GPU in half precision: there the kernels that are made for long ones spend
their time on waiting. Queries, keys and values come as they were projected, in one piece, and so do their gradients.

For compilers it is an operator of torch's own kind: they see one step and do not look inside. Called one by one, such
operators take the host longer than all the rest of a layer, so there it is a function with a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.fast.triton_common import runtime
from seqloom.parts.positions.rotary import CosSin, rotate
from seqloom.parts.visibility import Visibility

LONGEST = 64  # queries or keys of a row; beyond, the kernels made for long rows are at home
WIDTHS = (16, 32, 64, 128)  # of a head


def fits(x: Tensor, visible: Visibility, t: int, s: int, dim: int) -> bool:
    """Whether t queries and s keys a row, in heads of `dim`, go through this kernel; x holds some of them."""
    if not runtime.usable(x):
        return False
    plain = visible.bias is None and visible.window is None and visible.offset == 0 and (not visible.causal or t == s)
    each = visible.lengths is None or visible.lengths.size(0) == x.size(0)
    return plain and each and x.dtype.itemsize == 2 and dim in WIDTHS and max(t, s) <= LONGEST


def attention(
    x: Tensor,
    packed: Tensor | None,
    visible: Visibility,
    heads: int,
    scale: float,
    bias: Tensor | None = None,
    turns: CosSin | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ) v by heads -> [B, T, heads·dim].

    Self-attention: x is q, k and v, [B, T, 3·heads·dim]. Cross-attention: x is q, [B, T, heads·dim], and `packed` is k
    and v, [B, S, 2·heads·dim]. `bias` [3·heads·dim], of self-attention alone, is in x already, but its slope is made
    here; see `Linear.apart`. `turns`, of self-attention alone: q and k are turned by them first (rotary positions).
    """
    call = torch.ops.seqloom.short if torch.compiler.is_compiling() else _Short.apply
    cos, sin = turns or (None, None)
    return call(x, packed, visible.lengths, bias, cos, sin, heads, visible.causal, scale)


def plainly(
    x: Tensor,
    packed: Tensor | None,
    visible: Visibility,
    heads: int,
    scale: float,
    _: Any = None,
    turns: CosSin | None = None,
) -> Tensor:
    """The same by torch's own operations."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in _parts(x, packed))
    if turns is not None:
        q, k = (rotate(part, *turns) for part in (q, k))
    scores, keep = scale * (q @ k.mT), visible.keep(q.size(-2), k.size(-2), q.device)
    if keep is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep
    return (weights @ v).transpose(1, 2).flatten(2)


def _parts(x: Tensor, packed: Tensor | None) -> tuple[Tensor, ...]:
    return x.chunk(3, -1) if packed is None else (x, *packed.chunk(2, -1))


def _short(
    x: Tensor, packed: Tensor | None, lengths: Tensor | None, _: Any, cos: Tensor | None, sin: Tensor | None, *how: Any
) -> Tensor:
    from seqloom.fast.attention import short_triton

    heads, causal, scale = how
    q, k, v = _parts(x.contiguous(), None if packed is None else packed.contiguous())
    return short_triton.forward([q, k, v], lengths, _turns(cos, sin), causal, scale, q.size(-1) // heads)


def _turns(cos: Tensor | None, sin: Tensor | None) -> CosSin | None:
    return None if cos is None or sin is None else (cos.contiguous(), sin.contiguous())


def _slopes(
    slope: Tensor,
    x: Tensor,
    packed: Tensor | None,
    lengths: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    sums: bool,
    *how: Any,
) -> list[Tensor]:
    """By x, by `packed` and, if its `sums` are wanted, by the bias in x."""
    from seqloom.fast.attention import short_triton

    heads, causal, scale = how
    x, packed = x.contiguous(), None if packed is None else packed.contiguous()
    found = [torch.empty_like(whole) for whole in (x, packed) if whole is not None]
    inputs, slopes = list(_parts(x, packed)), list(_parts(found[0], None if packed is None else found[1]))
    each = x.new_empty(x.size(0), x.size(2), dtype=torch.float32) if sums else None
    how = (lengths, _turns(cos, sin), causal, scale, inputs[0].size(-1) // heads)
    short_triton.backward(slope.contiguous(), inputs, slopes, each, *how)
    return found if each is None else [*found, each.sum(0)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, packed, lengths, bias, cos, sin, *ctx.how = inputs
    ctx.save_for_backward(x, packed, lengths, cos, sin)
    ctx.bias = None if bias is None else bias.dtype


def _back(slopes: Callable[..., Any], ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    found = slopes(slope, *ctx.saved_tensors, ctx.bias is not None, *ctx.how)
    by_bias = None if ctx.bias is None else found.pop().to(ctx.bias)
    return found[0], found[1] if len(found) > 1 else None, None, by_bias, *[None] * 5


class _Short(torch.autograd.Function):
    forward, setup_context = staticmethod(_short), staticmethod(_keep)  # pyright: ignore
    backward = staticmethod(partial(_back, _slopes))  # pyright: ignore


_GIVEN, _HOW = "Tensor x, Tensor? packed, Tensor? lengths", "int heads, bool causal, float scale"
_TURNS = "Tensor? cos, Tensor? sin"
_operator = torch.library.custom_op(
    "seqloom::short", _short, mutates_args=(), schema=f"({_GIVEN}, Tensor? bias, {_TURNS}, {_HOW}) -> Tensor"
)
_operator_slopes = torch.library.custom_op(
    "seqloom::short_slopes",
    _slopes,
    mutates_args=(),
    schema=f"(Tensor slope, {_GIVEN}, {_TURNS}, bool sums, {_HOW}) -> Tensor[]",
)
_operator.register_autograd(partial(_back, torch.ops.seqloom.short_slopes), setup_context=_keep)


@_operator.register_fake
def _(x: Tensor, packed: Tensor | None, *_: Any) -> Tensor:
    return x.new_empty(x.size(0), x.size(1), x.size(2) // (3 if packed is None else 1))


@_operator_slopes.register_fake
def _(
    slope: Tensor, x: Tensor, packed: Tensor | None, _: Any, cos: Any, sin: Any, sums: bool, *__: Any
) -> list[Tensor]:
    found = [whole.new_empty(whole.shape) for whole in (x, packed) if whole is not None]
    return [*found, x.new_empty(x.size(2), dtype=torch.float32)] if sums else found
