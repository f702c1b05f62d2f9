"""Attention over short rows, one program for each row and head: its queries, keys and values are loaded whole, and the
weights never leave the chip; the backward pass makes them anew. The plain twin is `plainly` in
`fast/attention/short_gpu.py`."""

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

LEAST = 16  # rows of a tile: products are made of such
WARPS = {16: 2, 32: 2, 64: 4}  # by the larger tile


def forward(
    inputs: list[Tensor], lengths: Tensor | None, turns: CosSin | None, causal: bool, scale: float, dim: int
) -> Tensor:
    """q [B, T, heads·dim] and k, v [B, S, heads·dim], their last axis dense -> [B, T, heads·dim]. `turns` of queries
    and keys are in float32."""
    q, k, v = inputs
    mixed = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if mixed.numel():
        grid, numbers, how = _launch(q, k, lengths, turns, causal, dim)
        _forward[grid](q, k, v, mixed, lengths, *(turns or (None, None)), scale, *numbers, **how)
    return mixed


def backward(
    slope: Tensor,
    inputs: list[Tensor],
    slopes: list[Tensor],
    sums: Tensor | None,
    *how: Any,
) -> None:
    """The gradients by q, k and v, written to `slopes`, which lie in memory as `inputs` do; `slope` is contiguous.
    `sums` [B, 3·heads·dim]: so are their sums over the tokens of each row."""
    q, k, v = inputs
    lengths, turns, causal, scale, dim = how
    if q.size(0):
        grid, numbers, flags = _launch(q, k, lengths, turns, causal, dim)
        given = (slope, *slopes, sums, lengths, *(turns or (None, None)), scale)
        _backward[grid](q, k, v, *given, *numbers, SUMS=sums is not None, **flags)


def _launch(
    q: Tensor, k: Tensor, lengths: Tensor | None, turns: CosSin | None, causal: bool, dim: int
) -> tuple[tuple, tuple, dict]:
    t, s, heads = q.size(1), k.size(1), q.size(2) // dim
    tiles = {"T": _tile(t), "S": _tile(s), "D": dim}
    how = tiles | {"CAUSAL": causal, "PADDED": lengths is not None, "TURNED": turns is not None}
    how["num_warps"] = WARPS[max(tiles["T"], tiles["S"])]
    return (q.size(0) * heads,), (t, s, heads, *q.stride()[:2], *k.stride()[:2]), how


def _tile(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


@jit(varying=("t", "s"))
def _forward(
    q,
    k,
    v,
    mixed,
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
    TURNED: tl.constexpr,
):
    row, head = _place(heads)
    seen = _length(lengths, row, s, PADDED)
    asked = _load(q + row * q_row + head * D, t, q_step, T, D)
    # Padded keys are read as zeros: what stands there, infinite or not, changes nothing.
    keys = _load(k + row * k_row + head * D, seen, k_step, S, D)
    values = _load(v + row * k_row + head * D, seen, k_step, S, D)
    if TURNED:
        asked = _turned(asked, cos, sin, t, 1.0, T, D).to(asked.dtype)
        keys = _turned(keys, cos, sin, s, 1.0, S, D).to(keys.dtype)
    p = _weights(asked, keys, scale, seen, CAUSAL)
    found = tl.dot(p.to(values.dtype), values, input_precision="ieee")
    _store(mixed + (row * t * heads + head) * D, found, t, heads * D, T, D)


@jit(varying=("t", "s"))
def _backward(
    q,
    k,
    v,
    slope,
    by_q,
    by_k,
    by_v,
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
    TURNED: tl.constexpr,
    SUMS: tl.constexpr,
):
    row, head = _place(heads)
    seen = _length(lengths, row, s, PADDED)
    q_at, k_at = row * q_row + head * D, row * k_row + head * D
    asked = _load(q + q_at, t, q_step, T, D)
    keys = _load(k + k_at, seen, k_step, S, D)
    values = _load(v + k_at, seen, k_step, S, D)
    given = _load(slope + (row * t * heads + head) * D, t, heads * D, T, D)
    if TURNED:
        asked = _turned(asked, cos, sin, t, 1.0, T, D).to(asked.dtype)
        keys = _turned(keys, cos, sin, s, 1.0, S, D).to(keys.dtype)
    p = _weights(asked, keys, scale, seen, CAUSAL)
    found_v = tl.dot(tl.trans(p.to(given.dtype)), given, input_precision="ieee")
    _store(by_v + k_at, found_v, s, k_step, S, D)
    by_p = tl.dot(given, tl.trans(values), input_precision="ieee")
    by_score = (p * (by_p - tl.sum(p * by_p, 1)[:, None]) * scale).to(asked.dtype)
    found_q = tl.dot(by_score, keys, input_precision="ieee")
    found_k = tl.dot(tl.trans(by_score), asked, input_precision="ieee")
    if TURNED:  # back again: a turn's transpose is the turn the other way
        found_q = _turned(found_q, cos, sin, t, -1.0, T, D)
        found_k = _turned(found_k, cos, sin, s, -1.0, S, D)
    _store(by_q + q_at, found_q, t, q_step, T, D)
    _store(by_k + k_at, found_k, s, k_step, S, D)
    if SUMS:
        # What stands beyond the last token is zero in all three.
        place = sums + (row * 3 * heads + head) * D + tl.arange(0, D)
        tl.store(place, tl.sum(found_q, 0))
        tl.store(place + heads * D, tl.sum(found_k, 0))
        tl.store(place + 2 * heads * D, tl.sum(found_v, 0))


@jit()
def _place(heads):
    """Which row and head: heads of a row lie side by side in memory, so they are done side by side."""
    at = tl.program_id(0)
    return (at // heads).to(tl.int64), at % heads


@jit()
def _length(lengths, row, s, PADDED: tl.constexpr):
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
def _turned(tile, cos, sin, count, way, ROWS: tl.constexpr, D: tl.constexpr):
    """Each pair of features (2i, 2i+1) turned by the angle of its row, in float32; `way` −1.0: the other way."""
    rows = tl.arange(0, ROWS)[:, None]
    at = rows * (D // 2) + tl.arange(0, D // 2)[None, :]
    c = tl.load(cos + at, mask=rows < count, other=1.0)
    s = tl.load(sin + at, mask=rows < count, other=0.0) * way
    even, odd = tl.split(tl.reshape(tile.to(tl.float32), (ROWS, D // 2, 2)))
    return tl.reshape(tl.join(even * c - odd * s, even * s + odd * c), (ROWS, D))


@jit()
def _weights(asked, keys, scale, seen, CAUSAL: tl.constexpr):
    """softmax over the keys that are seen, in float32; zeros for a query that sees none."""
    scores = tl.dot(asked, tl.trans(keys), input_precision="ieee") * scale
    column = tl.arange(0, keys.shape[0])[None, :]
    keep = column < seen
    if CAUSAL:
        keep = keep & (column <= tl.arange(0, asked.shape[0])[:, None])
    scores = tl.where(keep, scores, -3e38)
    p = tl.where(keep, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(p, 1)
    return p / tl.where(total > 0.0, total, 1.0)[:, None]
