"""Slopes by queries, keys and values put side by side, with the sum of each column, which is the slope by a bias that
was added to all of them. The plain twin is in `fast/attention/qkv_gpu.py`."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.column_sums import launch, rows
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None


def pack(parts: tuple[Tensor, Tensor, Tensor], found: Tensor, sums: Tensor) -> None:
    """Three of [B, heads, T, D], in whatever order in memory but for the last axis, which is dense. Written: `found`
    [B, T, 3·heads·D] and `sums` [programs, 3·heads·D]."""
    b, heads, t, dim = parts[0].shape
    steps = [part.stride(axis) for part in parts for axis in range(3)]
    grid, how = launch(b * t, heads * dim, 3)
    _pack[grid](*parts, found, sums, *steps, b * t, t, heads * dim, D=dim, **how)


@jit(varying=("vectors", "t"))
def _pack(
    by_q,
    by_k,
    by_v,
    found,
    sums,
    q_row,
    q_head,
    q_step,
    k_row,
    k_head,
    k_step,
    v_row,
    v_head,
    v_step,
    vectors,
    t,
    dim,
    D: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    part = tl.program_id(2)
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    source, by_row, by_head, by_step = by_q, q_row, q_head, q_step
    if part == 1:
        source, by_row, by_head, by_step = by_k, k_row, k_head, k_step
    if part == 2:
        source, by_row, by_head, by_step = by_v, v_row, v_head, v_step
    source += column[None, :] // D * by_head + column[None, :] % D
    total = tl.zeros([LANES], tl.float32)
    for i in range(TILES):
        for half in tl.static_range(2):
            row = rows(tl.program_id(0) * TILES + i, half)
            there = (row < vectors) & (column < dim)[None, :]
            at = (row // t).to(tl.int64) * by_row + (row % t).to(tl.int64) * by_step
            value = tl.load(source + at, mask=there, other=0.0)
            tl.store(found + (row.to(tl.int64) * 3 + part) * dim + column[None, :], value, mask=there)
            total += tl.sum(value.to(tl.float32), 0)
    tl.store(sums + (tl.program_id(0) * 3 + part) * dim + column, total, mask=column < dim)
