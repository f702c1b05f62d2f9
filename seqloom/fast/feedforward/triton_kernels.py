"""dropout(max(0, x)) and dropout(gelu(x)), and their gradients with the sum of each column, the gradient of a bias that
was added to x: summed here, they are not read again for it. The reference is in `fast/feedforward/gpu.py`.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.residual_norm.triton_kernels import dropout_args
from seqloom.fast.triton_common.column_sums import launch, rows
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None


def forward(x: Tensor, y: Tensor, gelu: bool, drop: tuple[Tensor, float] | None) -> None:
    """Writes y. x and y [N, dim], both contiguous; `drop`: seed and p."""
    grid, options = launch(*x.shape)
    seed, threshold, scale = dropout_args(drop)
    _forward[grid](x, y, seed, *x.shape, threshold, scale, GELU=gelu, DROPOUT=drop is not None, **options)


def backward(
    inputs: tuple[Tensor, Tensor], outputs: tuple[Tensor, Tensor | None], gelu: bool, drop: tuple[Tensor, float] | None
) -> None:
    """`inputs`: the gradient of y, and x for GELU or y for ReLU, since y > 0 is neither negative nor dropped. Writes to
    `outputs`: the gradient of x, and each program's column sums, [programs, dim]."""
    grid, options = launch(*inputs[0].shape)
    seed, threshold, scale = dropout_args(drop)
    flags = {"GELU": gelu, "DROPOUT": drop is not None, "SUMS": outputs[1] is not None}
    _backward[grid](*inputs, *outputs, seed, *inputs[0].shape, threshold, scale, **flags, **options)


@jit(varying=("vectors", "threshold"))
def _forward(
    x,
    y,
    seed,
    vectors,
    dim,
    threshold,
    scale,
    GELU: tl.constexpr,
    DROPOUT: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    for i in range(TILES):
        tile = tl.program_id(0) * TILES + i
        if DROPOUT:
            a, b, c, d = tl.randint4x(tl.load(seed), tile * dim + column, 7)
        for half in tl.static_range(2):
            row = rows(tile, half)
            offset, mask = row.to(tl.int64) * dim + column[None, :], (row < vectors) & (column < dim)[None, :]
            value = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
            if GELU:
                cdf, _ = _normal_cdf_and_density(value)
                value *= cdf
            else:
                value = tl.where(value < 0.0, 0.0, value)
            if DROPOUT:
                value = tl.where(_sixteen_bits(a, b, c, d, half) >= threshold, value * scale, 0.0)
            tl.store(y + offset, value.to(y.dtype.element_ty), mask=mask)


@jit(varying=("vectors", "threshold"))
def _backward(
    grad_y,
    saved,
    grad_x,
    sums,
    seed,
    vectors,
    dim,
    threshold,
    scale,
    GELU: tl.constexpr,
    DROPOUT: tl.constexpr,
    SUMS: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.float32)
    for i in range(TILES):
        tile = tl.program_id(0) * TILES + i
        if GELU and DROPOUT:
            a, b, c, d = tl.randint4x(tl.load(seed), tile * dim + column, 7)
        for half in tl.static_range(2):
            row = rows(tile, half)
            offset, mask = row.to(tl.int64) * dim + column[None, :], (row < vectors) & (column < dim)[None, :]
            grad = tl.load(grad_y + offset, mask=mask, other=0.0).to(tl.float32)
            value = tl.load(saved + offset, mask=mask, other=0.0).to(tl.float32)
            if GELU:
                cdf, density = _normal_cdf_and_density(value)
                grad *= cdf + value * density
                if DROPOUT:
                    grad = tl.where(_sixteen_bits(a, b, c, d, half) >= threshold, grad * scale, 0.0)
            else:
                grad = tl.where(value > 0.0, grad * scale, 0.0)
            tl.store(grad_x + offset, grad.to(grad_x.dtype.element_ty), mask=mask)
            if SUMS:
                total += tl.sum(grad, 0)
    if SUMS:
        tl.store(sums + tl.program_id(0) * dim + column, total, mask=column < dim)


@jit()
def _normal_cdf_and_density(x):
    """The normal distribution function at x, to 10⁻⁷ (Abramowitz & Stegun 1964, 7.1.26), and its density, from one
    exponential: with torch's two formulas the kernel would be bound by arithmetic, not by memory."""
    power = tl.exp2(x * x * -0.721347520)
    t = 1.0 / (1.0 + 0.231641889 * tl.abs(x))
    tail = ((((0.530702715 * t - 0.726576014) * t + 0.710706871) * t - 0.142248368) * t + 0.127414796) * t * power
    return tl.where(x < 0.0, tail, 1.0 - tail), 0.398942280 * power


@jit()
def _sixteen_bits(a, b, c, d, half: tl.constexpr):
    """16 random bits for each of four rows, from the first or the last two of four words."""
    i = tl.arange(0, 4)[:, None]
    word = tl.where(i < 2, a[None, :], b[None, :])
    if half == 1:
        word = tl.where(i < 2, c[None, :], d[None, :])
    return ((word >> (i % 2 * 16)) & 0xFFFF).to(tl.int32)
