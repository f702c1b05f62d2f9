"""dropout(max(0, x)) and dropout(gelu(x)), and their slopes together with the sum of each column, which is the slope by
a bias that was added to x: so what is written need not be read again for it. The plain twin is in `parts/activated.py`.

A program goes down some columns, whose sums its threads keep to themselves; the programs' sums are added up afterwards
and always in the same order.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.parts.kernels import jit
from seqloom.parts.kernels.added import drawn

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

EACH = 8  # rows of a tile: as many as a random number of 128 bits serves
LANES = 1024  # columns of a program at most
NEIGHBOURS = 256  # columns of a warp, eight a thread: 16 bytes in half precision
TILES = 8  # of a program at most, one below the other
PROGRAMS = 1024  # with fewer of them they take fewer tiles each, which keeps more of the chip at work


def forward(x: Tensor, y: Tensor, gelu: bool, drop: tuple[Tensor, float] | None) -> None:
    """x [N, dim], and y, which is written, both contiguous; a seed and p."""
    grid, how = _launch(x)
    seed, dropped, scale = drawn(drop)
    _forward[grid](x, y, seed, *x.shape, dropped, scale, GELU=gelu, DROPS=drop is not None, **how)


def backward(
    given: tuple[Tensor, Tensor], places: tuple[Tensor, Tensor | None], gelu: bool, drop: tuple[Tensor, float] | None
) -> None:
    """The slope by y, and x, or y where it was rectified: what is above zero was neither negative nor dropped. Written
    to `places`: the slope by x, and the sums of each program, [`programs`, dim]."""
    grid, how = _launch(given[0])
    seed, dropped, scale = drawn(drop)
    flags = {"GELU": gelu, "DROPS": drop is not None, "SUMS": places[1] is not None}
    _backward[grid](*given, *places, seed, *given[0].shape, dropped, scale, **flags, **how)


def programs(vectors: int, dim: int) -> int:
    return -(-vectors // (EACH * _tiles(vectors, dim)))


def _launch(x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    vectors, dim = x.shape
    lanes = _lanes(dim)
    how = {"LANES": lanes, "TILES": _tiles(vectors, dim), "num_warps": max(1, lanes // NEIGHBOURS)}
    return (programs(vectors, dim), -(-dim // lanes)), how


def _lanes(dim: int) -> int:
    """Such that no lane is idle, if it can be."""
    fitting = dim & -dim
    return min(LANES, fitting if fitting >= NEIGHBOURS else max(32, 1 << (dim - 1).bit_length()))


def _tiles(vectors: int, dim: int) -> int:
    most = vectors * -(-dim // _lanes(dim)) // (EACH * PROGRAMS)
    return min(TILES, 1 << max(most.bit_length() - 1, 0))


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
    for tile in range(TILES):
        group = tl.program_id(0) * TILES + tile
        if DROPS:
            a, b, c, d = tl.randint4x(tl.load(seed), group * dim + column, 7)
        for half in tl.static_range(2):
            at, there = _places(group, half, column, vectors, dim)
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
    for tile in range(TILES):
        group = tl.program_id(0) * TILES + tile
        if GELU and DROPS:
            a, b, c, d = tl.randint4x(tl.load(seed), group * dim + column, 7)
        for half in tl.static_range(2):
            at, there = _places(group, half, column, vectors, dim)
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
def _places(group, half: tl.constexpr, column, vectors, dim):
    """Half of a tile, four rows: more would not find room in registers."""
    row = group.to(tl.int64) * 8 + half * 4 + tl.arange(0, 4)[:, None]
    return row * dim + column[None, :], (row < vectors) & (column < dim)[None, :]


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
