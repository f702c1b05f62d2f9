"""Softmax attention over short sequences on a GPU in half precision, where kernels made for long ones are bound by
latency. Queries, keys and values come packed, as one projection made them, and so do their gradients.

For torch.compile it is a custom operator, one opaque node of the graph. In eager mode, where a custom operator costs
the host more than the rest of a layer, it is an autograd function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from seqloom.fast.triton_common import runtime
from seqloom.parts.positions.rotary import CosSin, rotate
from seqloom.parts.visibility import Visibility

MAX_LENGTH = 64  # queries or keys; for more, the kernels made for long sequences are as fast
HEAD_DIMS = (16, 32, 64, 128)


def supported(x: Tensor, dtype: torch.dtype, visible: Visibility, t: int, s: int, dim: int) -> bool:
    """For t queries and s keys in `dtype` and heads of `dim`; x [B, …] holds the queries, or what they are made of."""
    if not runtime.usable(x):
        return False
    plain = visible.bias is None and visible.window is None and visible.offset == 0 and (not visible.causal or t == s)
    same_rows = visible.lengths is None or visible.lengths.size(0) == x.size(0)
    return plain and same_rows and dtype.itemsize == 2 and dim in HEAD_DIMS and max(t, s) <= MAX_LENGTH


def attention(
    x: Tensor,
    kv: Tensor | None,
    visible: Visibility,
    heads: int,
    scale: float,
    bias: Tensor | None = None,
    rotary: CosSin | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ) v by heads -> [B, T, heads·dim].

    Self-attention: x is q, k and v, [B, T, 3·heads·dim]. Cross-attention: x is q, [B, T, heads·dim], and `kv` is k
    and v, [B, S, 2·heads·dim]. `bias` [3·heads·dim], of self-attention alone, is in x already, but its gradient is
    made here; see `defer_bias_grad`. `rotary`, of self-attention alone: cosines and sines by which q
    and k are rotated first.
    """
    call = torch.ops.seqloom.short if torch.compiler.is_compiling() else _ShortAttention.apply
    cos, sin = rotary or (None, None)
    return call(x, kv, visible.lengths, bias, cos, sin, heads, visible.causal, scale)


def reference(
    x: Tensor,
    kv: Tensor | None,
    visible: Visibility,
    heads: int,
    scale: float,
    _: Any = None,
    rotary: CosSin | None = None,
) -> Tensor:
    """The same by torch's operators."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in _split_qkv(x, kv))
    if rotary is not None:
        q, k = (rotate(part, *rotary) for part in (q, k))
    scores, keep = scale * (q @ k.mT), visible.keep(q.size(-2), k.size(-2), q.device)
    if keep is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep
    return (weights @ v).transpose(1, 2).flatten(2)


def _split_qkv(x: Tensor, kv: Tensor | None) -> tuple[Tensor, ...]:
    return x.chunk(3, -1) if kv is None else (x, *kv.chunk(2, -1))


def _short(
    x: Tensor, kv: Tensor | None, lengths: Tensor | None, _: Any, cos: Tensor | None, sin: Tensor | None, *options: Any
) -> Tensor:
    from seqloom.fast.attention import short_triton

    heads, causal, scale = options
    q, k, v = _split_qkv(x.contiguous(), None if kv is None else kv.contiguous())
    return short_triton.forward([q, k, v], lengths, _contiguous_rotary(cos, sin), causal, scale, q.size(-1) // heads)


def _contiguous_rotary(cos: Tensor | None, sin: Tensor | None) -> CosSin | None:
    return None if cos is None or sin is None else (cos.contiguous(), sin.contiguous())


def _grads(
    grad_output: Tensor,
    x: Tensor,
    kv: Tensor | None,
    lengths: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    sums: bool,
    *options: Any,
) -> list[Tensor]:
    """Gradients of x, of `kv` and, with `sums`, of the bias in x."""
    from seqloom.fast.attention import short_triton

    heads, causal, scale = options
    x, kv = x.contiguous(), None if kv is None else kv.contiguous()
    grads = [torch.empty_like(whole) for whole in (x, kv) if whole is not None]
    inputs, parts = list(_split_qkv(x, kv)), list(_split_qkv(grads[0], None if kv is None else grads[1]))
    bias_sums = x.new_empty(x.size(0), x.size(2), dtype=torch.float32) if sums else None
    options = (lengths, _contiguous_rotary(cos, sin), causal, scale, inputs[0].size(-1) // heads)
    short_triton.backward(grad_output.contiguous(), inputs, parts, bias_sums, *options)
    return grads if bias_sums is None else [*grads, bias_sums.sum(0)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, kv, lengths, bias, cos, sin, *ctx.options = inputs
    ctx.save_for_backward(x, kv, lengths, cos, sin)
    ctx.bias = None if bias is None else bias.dtype


def _backward(backward: Callable[..., Any], ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    grads = backward(grad_output, *ctx.saved_tensors, ctx.bias is not None, *ctx.options)
    grad_bias = None if ctx.bias is None else grads.pop().to(ctx.bias)
    return grads[0], grads[1] if len(grads) > 1 else None, None, grad_bias, *[None] * 5


class _ShortAttention(torch.autograd.Function):
    forward, setup_context = staticmethod(_short), staticmethod(_setup_context)  # pyright: ignore
    backward = staticmethod(partial(_backward, _grads))  # pyright: ignore


_INPUTS, _OPTIONS = "Tensor x, Tensor? kv, Tensor? lengths", "int heads, bool causal, float scale"
_ROTARY = "Tensor? cos, Tensor? sin"

if find_spec("triton") is not None:  # registering takes a tenth of a second, and compilers of a CPU need no operator
    _operator = torch.library.custom_op(
        "seqloom::short", _short, mutates_args=(), schema=f"({_INPUTS}, Tensor? bias, {_ROTARY}, {_OPTIONS}) -> Tensor"
    )
    _backward_operator = torch.library.custom_op(
        "seqloom::short_slopes",
        _grads,
        mutates_args=(),
        schema=f"(Tensor grad_output, {_INPUTS}, {_ROTARY}, bool sums, {_OPTIONS}) -> Tensor[]",
    )
    _operator.register_autograd(partial(_backward, torch.ops.seqloom.short_slopes), setup_context=_setup_context)

    @_operator.register_fake
    def _(x: Tensor, kv: Tensor | None, *_: Any) -> Tensor:
        return x.new_empty(x.size(0), x.size(1), x.size(2) // (3 if kv is None else 1))

    @_backward_operator.register_fake
    def _(
        grad_output: Tensor, x: Tensor, kv: Tensor | None, _: Any, cos: Any, sin: Any, sums: bool, *__: Any
    ) -> list[Tensor]:
        grads = [whole.new_empty(whole.shape) for whole in (x, kv) if whole is not None]
        return [*grads, x.new_empty(x.size(2), dtype=torch.float32)] if sums else grads
