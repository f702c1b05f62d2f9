"""dropout(max(0, x)) and dropout(gelu(x)), and their slopes together with the sum of each column, which is the slope by
a bias that was added to x: so what is written need not be read again for it. The plain twin is in
`fast/feedforward/gpu.py`.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.residual_norm.triton_kernels import drawn
from seqloom.fast.triton_common.column_sums import launch, rows
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None


def forward(x: Tensor, y: Tensor, gelu: bool, drop: tuple[Tensor, float] | None) -> None:
    """x [N, dim], and y, which is written, both contiguous; a seed and p."""
    grid, how = launch(*x.shape)
    seed, dropped, scale = drawn(drop)
    _forward[grid](x, y, seed, *x.shape, dropped, scale, GELU=gelu, DROPS=drop is not None, **how)


def backward(
    given: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor | None], gelu: bool, drop: tuple[Tensor, float] | None
) -> None:
    """The slope by y, and x, or y where it was rectified: what is above zero was neither negative nor dropped. Written
    to `found`: the slope by x, and the sums of each program, [programs, dim]."""
    grid, how = launch(*given[0].shape)
    seed, dropped, scale = drawn(drop)
    flags = {"GELU": gelu, "DROPS": drop is not None, "SUMS": found[1] is not None}
    _backward[grid](*given, *found, seed, *given[0].shape, dropped, scale, **flags, **how)


@jit(varying=("vectors", "dropped"))
def _forward(
    x,
    y,
    seed,
    vectors,
    dim,
    dropped,
    scale,
    GELU: tl.constexpr,
    DROPS: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    for i in range(TILES):
        tile = tl.program_id(0) * TILES + i
        if DROPS:
            a, b, c, d = tl.randint4x(tl.load(seed), tile * dim + column, 7)
        for half in tl.static_range(2):
            row = rows(tile, half)
            at, there = row.to(tl.int64) * dim + column[None, :], (row < vectors) & (column < dim)[None, :]
            value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
            if GELU:
                below, _ = _normal(value)
                value *= below
            else:
                value = tl.where(value < 0.0, 0.0, value)
            if DROPS:
                value = tl.where(_sixteen(a, b, c, d, half) >= dropped, value * scale, 0.0)
            tl.store(y + at, value.to(y.dtype.element_ty), mask=there)


@jit(varying=("vectors", "dropped"))
def _backward(
    slope,
    kept,
    found,
    sums,
    seed,
    vectors,
    dim,
    dropped,
    scale,
    GELU: tl.constexpr,
    DROPS: tl.constexpr,
    SUMS: tl.constexpr,
    LANES: tl.constexpr,
    TILES: tl.constexpr,
):
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.float32)
    for i in range(TILES):
        tile = tl.program_id(0) * TILES + i
        if GELU and DROPS:
            a, b, c, d = tl.randint4x(tl.load(seed), tile * dim + column, 7)
        for half in tl.static_range(2):
            row = rows(tile, half)
            at, there = row.to(tl.int64) * dim + column[None, :], (row < vectors) & (column < dim)[None, :]
            given = tl.load(slope + at, mask=there, other=0.0).to(tl.float32)
            value = tl.load(kept + at, mask=there, other=0.0).to(tl.float32)
            if GELU:
                below, dense = _normal(value)
                given *= below + value * dense
                if DROPS:
                    given = tl.where(_sixteen(a, b, c, d, half) >= dropped, given * scale, 0.0)
            else:
                given = tl.where(value > 0.0, given * scale, 0.0)
            tl.store(found + at, given.to(found.dtype.element_ty), mask=there)
            if SUMS:
                total += tl.sum(given, 0)
    if SUMS:
        tl.store(sums + tl.program_id(0) * dim + column, total, mask=column < dim)


@jit()
def _normal(x):
    """The share of the normal distribution that lies below x, to 10⁻⁷ (Abramowitz & Stegun 1964, 7.1.26), and its
    density at x, of one exponential: torch's two take longer than memory does."""
    power = tl.exp2(x * x * -0.721347520)
    t = 1.0 / (1.0 + 0.231641889 * tl.abs(x))
    tail = ((((0.530702715 * t - 0.726576014) * t + 0.710706871) * t - 0.142248368) * t + 0.127414796) * t * power
    return tl.where(x < 0.0, tail, 1.0 - tail), 0.398942280 * power


@jit()
def _sixteen(a, b, c, d, half: tl.constexpr):
    """Sixteen bits for each of four rows, of the first or of the last two of four words."""
    i = tl.arange(0, 4)[:, None]
    word = tl.where(i < 2, a[None, :], b[None, :])
    if half == 1:
        word = tl.where(i < 2, c[None, :], d[None, :])
    return ((word >> (i % 2 * 16)) & 0xFFFF).to(tl.int32)
