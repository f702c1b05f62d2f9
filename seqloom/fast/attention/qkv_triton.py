"""Concatenates the gradients of queries, keys and values, with the sum of each column: the gradient of the bias that
was added to all of them. The reference is in `fast/attention/qkv_gpu.py`."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.column_sums import launch, rows
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None


def concat_grads(grads: tuple[Tensor, Tensor, Tensor], grad_qkv: Tensor, sums: Tensor) -> None:
    """Writes `grad_qkv` [B, T, 3·heads·D] and `sums` [programs, 3·heads·D]. `grads`: three of [B, heads, T, D] with a
    dense last axis."""
    b, heads, t, dim = grads[0].shape
    strides = [part.stride(axis) for part in grads for axis in range(3)]
    grid, options = launch(b * t, heads * dim, 3)
    _concat_grads[grid](*grads, grad_qkv, sums, *strides, b * t, t, heads * dim, D=dim, **options)


@jit(varying=("vectors", "t"))
def _concat_grads(
    grad_q,
    grad_k,
    grad_v,
    grad_qkv,
    sums,
    q_row_stride,
    q_head_stride,
    q_step_stride,
    k_row_stride,
    k_head_stride,
    k_step_stride,
    v_row_stride,
    v_head_stride,
    v_step_stride,
    vectors,
    t,
    dim,
    D: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    part = tl.program_id(2)
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    source, row_stride, head_stride, step_stride = grad_q, q_row_stride, q_head_stride, q_step_stride
    if part == 1:
        source, row_stride, head_stride, step_stride = grad_k, k_row_stride, k_head_stride, k_step_stride
    if part == 2:
        source, row_stride, head_stride, step_stride = grad_v, v_row_stride, v_head_stride, v_step_stride
    source += column[None, :] // D * head_stride + column[None, :] % D
    total = tl.zeros([LANES], tl.float32)
    for i in range(TILES):
        for half in tl.static_range(2):
            row = rows(tl.program_id(0) * TILES + i, half)
            mask = (row < vectors) & (column < dim)[None, :]
            offset = (row // t).to(tl.int64) * row_stride + (row % t).to(tl.int64) * step_stride
            value = tl.load(source + offset, mask=mask, other=0.0)
            tl.store(grad_qkv + (row.to(tl.int64) * 3 + part) * dim + column[None, :], value, mask=mask)
            total += tl.sum(value.to(tl.float32), 0)
    tl.store(sums + (tl.program_id(0) * 3 + part) * dim + column, total, mask=column < dim)
