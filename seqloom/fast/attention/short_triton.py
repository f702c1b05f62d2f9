"""Attention over short sequences, one program for each row and head: its queries, keys and values are loaded whole, and
the weights never leave the chip; the backward pass recomputes them. The reference is in `fast/attention/short_gpu.py`.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqloom.fast.triton_common.runtime import jit
from seqloom.parts.positions.rotary import CosSin

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

MIN_TILE = 16  # rows of a tile, as tl.dot needs them
WARPS = {16: 2, 32: 2, 64: 4}  # by the larger tile


def forward(
    inputs: list[Tensor], lengths: Tensor | None, rotary: CosSin | None, causal: bool, scale: float, dim: int
) -> Tensor:
    """q [B, T, heads·dim] and k, v [B, S, heads·dim], their last axis dense -> [B, T, heads·dim]. `rotary`: cosines
    and sines in float32."""
    q, k, v = inputs
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if out.numel():
        grid, sizes, options = _launch(q, k, lengths, rotary, causal, dim)
        _forward[grid](q, k, v, out, lengths, *(rotary or (None, None)), scale, *sizes, **options)
    return out


def backward(
    grad_out: Tensor,
    inputs: list[Tensor],
    grads: list[Tensor],
    sums: Tensor | None,
    *options: Any,
) -> None:
    """Writes the gradients of q, k and v to `grads`, which have the strides of `inputs`; `grad_out` is contiguous.
    `sums` [B, 3·heads·dim], if wanted: their sums over the tokens of each row."""
    q, k, v = inputs
    lengths, rotary, causal, scale, dim = options
    if q.size(0):
        grid, sizes, flags = _launch(q, k, lengths, rotary, causal, dim)
        grad = (grad_out, *grads, sums, lengths, *(rotary or (None, None)), scale)
        _backward[grid](q, k, v, *grad, *sizes, SUMS=sums is not None, **flags)


def _launch(
    q: Tensor, k: Tensor, lengths: Tensor | None, rotary: CosSin | None, causal: bool, dim: int
) -> tuple[tuple, tuple, dict]:
    t, s, heads = q.size(1), k.size(1), q.size(2) // dim
    tiles = {"T": _tile(t), "S": _tile(s), "D": dim}
    options = tiles | {"CAUSAL": causal, "PADDED": lengths is not None, "ROTARY": rotary is not None}
    options["num_warps"] = WARPS[max(tiles["T"], tiles["S"])]
    return (q.size(0) * heads,), (t, s, heads, *q.stride()[:2], *k.stride()[:2]), options


def _tile(size: int) -> int:
    return max(MIN_TILE, 1 << (size - 1).bit_length())


@jit(varying=("t", "s"))
def _forward(
    q,
    k,
    v,
    out,
    lengths,
    cos,
    sin,
    scale,
    t,
    s,
    heads,
    q_row,
    q_step,
    k_row,
    k_step,
    T: tl.constexpr,
    S: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
):
    row, head = _row_and_head(heads)
    visible = _real_length(lengths, row, s, PADDED)
    queries = _load(q + row * q_row + head * D, t, q_step, T, D)
    # Padded keys and values are read as zeros: infinities there change nothing.
    keys = _load(k + row * k_row + head * D, visible, k_step, S, D)
    values = _load(v + row * k_row + head * D, visible, k_step, S, D)
    if ROTARY:
        queries = _rotated(queries, cos, sin, t, 1.0, T, D).to(queries.dtype)
        keys = _rotated(keys, cos, sin, s, 1.0, S, D).to(keys.dtype)
    p = _weights(queries, keys, scale, visible, CAUSAL)
    tile = tl.dot(p.to(values.dtype), values, input_precision="ieee")
    _store(out + (row * t * heads + head) * D, tile, t, heads * D, T, D)


@jit(varying=("t", "s"))
def _backward(
    q,
    k,
    v,
    grad_out,
    grad_q,
    grad_k,
    grad_v,
    sums,
    lengths,
    cos,
    sin,
    scale,
    t,
    s,
    heads,
    q_row,
    q_step,
    k_row,
    k_step,
    T: tl.constexpr,
    S: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
    SUMS: tl.constexpr,
):
    row, head = _row_and_head(heads)
    visible = _real_length(lengths, row, s, PADDED)
    q_at, k_at = row * q_row + head * D, row * k_row + head * D
    queries = _load(q + q_at, t, q_step, T, D)
    keys = _load(k + k_at, visible, k_step, S, D)
    values = _load(v + k_at, visible, k_step, S, D)
    grad = _load(grad_out + (row * t * heads + head) * D, t, heads * D, T, D)
    if ROTARY:
        queries = _rotated(queries, cos, sin, t, 1.0, T, D).to(queries.dtype)
        keys = _rotated(keys, cos, sin, s, 1.0, S, D).to(keys.dtype)
    p = _weights(queries, keys, scale, visible, CAUSAL)
    tile_grad_v = tl.dot(tl.trans(p.to(grad.dtype)), grad, input_precision="ieee")
    _store(grad_v + k_at, tile_grad_v, s, k_step, S, D)
    grad_p = tl.dot(grad, tl.trans(values), input_precision="ieee")
    grad_score = (p * (grad_p - tl.sum(p * grad_p, 1)[:, None]) * scale).to(queries.dtype)
    tile_grad_q = tl.dot(grad_score, keys, input_precision="ieee")
    tile_grad_k = tl.dot(tl.trans(grad_score), queries, input_precision="ieee")
    if ROTARY:  # backward: the transpose of a rotation is the rotation by the negative angle
        tile_grad_q = _rotated(tile_grad_q, cos, sin, t, -1.0, T, D)
        tile_grad_k = _rotated(tile_grad_k, cos, sin, s, -1.0, S, D)
    _store(grad_q + q_at, tile_grad_q, t, q_step, T, D)
    _store(grad_k + k_at, tile_grad_k, s, k_step, S, D)
    if SUMS:
        # Rows beyond the last token are zero in all three.
        target = sums + (row * 3 * heads + head) * D + tl.arange(0, D)
        tl.store(target, tl.sum(tile_grad_q, 0))
        tl.store(target + heads * D, tl.sum(tile_grad_k, 0))
        tl.store(target + 2 * heads * D, tl.sum(tile_grad_v, 0))


@jit()
def _row_and_head(heads):
    """Row and head of this program: neighbouring programs read neighbouring heads of a row."""
    at = tl.program_id(0)
    return (at // heads).to(tl.int64), at % heads


@jit()
def _real_length(lengths, row, s, PADDED: tl.constexpr):
    if PADDED:
        s = tl.minimum(tl.load(lengths + row).to(tl.int32), s)
    return s


@jit()
def _load(start, count, step, ROWS: tl.constexpr, D: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    return tl.load(start + rows * step + tl.arange(0, D)[None, :], mask=rows < count, other=0.0)


@jit()
def _store(start, tile, count, step, ROWS: tl.constexpr, D: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    tl.store(start + rows * step + tl.arange(0, D)[None, :], tile.to(start.dtype.element_ty), mask=rows < count)


@jit()
def _rotated(tile, cos, sin, count, direction, ROWS: tl.constexpr, D: tl.constexpr):
    """Each pair of features (2i, 2i+1) rotated by the angle of its row, in float32; `direction` −1.0: backwards."""
    rows = tl.arange(0, ROWS)[:, None]
    at = rows * (D // 2) + tl.arange(0, D // 2)[None, :]
    c = tl.load(cos + at, mask=rows < count, other=1.0)
    s = tl.load(sin + at, mask=rows < count, other=0.0) * direction
    even, odd = tl.split(tl.reshape(tile.to(tl.float32), (ROWS, D // 2, 2)))
    return tl.reshape(tl.join(even * c - odd * s, even * s + odd * c), (ROWS, D))


@jit()
def _weights(queries, keys, scale, visible, CAUSAL: tl.constexpr):
    """Softmax over the visible keys, in float32; zeros for a query without any."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    column = tl.arange(0, keys.shape[0])[None, :]
    keep = column < visible
    if CAUSAL:
        keep = keep & (column <= tl.arange(0, queries.shape[0])[:, None])
    scores = tl.where(keep, scores, -3e38)
    p = tl.where(keep, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(p, 1)
    return p / tl.where(total > 0.0, total, 1.0)[:, None]
