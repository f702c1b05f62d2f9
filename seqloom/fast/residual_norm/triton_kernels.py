"""x + dropout(y) and the layer norm of that, either or both, in one kernel each way: a vector is read once, and what is
dropped is drawn anew on the way back instead of being kept. The plain twin is in `fast/residual_norm/gpu.py`.

A random number of 128 bits serves eight values, so that drawing takes less time than reading: a probability is a
multiple of 1/65536.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

EACH = 8  # vectors of a program: as many as a number of 128 bits serves
FEW = 4096  # vectors; fewer are one to a program, which keeps more of the chip at work
PROGRAMS = 2048  # with more of them each takes several groups of vectors on the way back, for fewer sums to add up
GROUPS = 4  # at most
STEPS = 1 << 16


def forward(
    given: tuple[Tensor, Tensor | None],
    norm: tuple[Tensor, Tensor, float] | None,
    drop: tuple[Tensor, float] | None,
    places: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> None:
    """x and y [N, dim]; weight, bias and ε; a seed and p. Written to `places`: x + dropout(y), its norm, and the mean
    and 1/deviation of each vector, [N, 2]."""
    x, y = given
    weight, bias, eps = norm or (None, None, 0.0)
    how = _how(x)
    grid = (-(-x.size(0) // how["EACH"]),)
    seed, dropped, scale = drawn(drop)
    flags = {"ADDS": y is not None, "NORMS": norm is not None, "DROPS": drop is not None}
    _forward[grid](x, y, weight, bias, seed, *places, *x.shape, eps, dropped, scale, **flags, **how)


def backward(
    slopes: tuple[Tensor | None, Tensor | None],
    kept: tuple[Tensor | None, Tensor | None, Tensor | None],
    drop: tuple[Tensor, float] | None,
    places: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> None:
    """Slopes by the sum and by the norm; the sum, the statistics and the weight, where there was a norm. Written to
    `places`: slopes by x and by y, and the sums of each program for weight and bias, [2, programs, dim]."""
    some = next(part for part in slopes if part is not None)
    grid, how = (programs(some.size(0)),), _how(some) | {"GROUPS": _groups(some.size(0))}
    seed, dropped, scale = drawn(drop)
    flags = {"GIVEN": slopes[0] is not None, "NORMS": slopes[1] is not None, "DROPS": drop is not None}
    flags |= {"BY_X": places[0] is not None, "BY_Y": places[1] is not None}
    _backward[grid](*slopes, *kept, seed, *places, *some.shape, grid[0], dropped, scale, **flags, **how)


def programs(vectors: int) -> int:
    """On the way back."""
    return vectors if vectors < FEW else -(-vectors // (EACH * _groups(vectors)))


def drawn(drop: tuple[Tensor, float] | None) -> tuple[Tensor | None, int, float]:
    """A seed, in how many of STEPS cases something is dropped, and what makes up for it."""
    if drop is None:
        return None, 0, 1.0
    dropped = round(drop[1] * STEPS)
    return drop[0], dropped, STEPS / max(STEPS - dropped, 1)


def _groups(vectors: int) -> int:
    return 1 if vectors < FEW else min(GROUPS, 1 << max((vectors // (EACH * PROGRAMS)).bit_length() - 1, 0))


def _how(x: Tensor) -> dict[str, int]:
    vectors, dim = x.shape
    lanes = max(32, 1 << (dim - 1).bit_length())
    return {"LANES": lanes, "EACH": 1 if vectors < FEW else EACH, "num_warps": max(1, min(16, lanes // 512))}


@jit(varying=("vectors", "dropped"))
def _forward(
    x,
    y,
    weight,
    bias,
    seed,
    total,
    normed,
    kept,
    vectors,
    dim,
    eps,
    dropped,
    scale,
    ADDS: tl.constexpr,
    NORMS: tl.constexpr,
    DROPS: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    column = tl.arange(0, LANES)
    inside = column < dim
    if NORMS:
        gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        more = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        a, b, c, d = _numbers(seed, tl.program_id(0), LANES)
    for i in tl.static_range(EACH):
        row = tl.program_id(0).to(tl.int64) * EACH + i
        at, there = row * dim + column, inside & (row < vectors)
        value = tl.load(x + at, mask=there, other=0.0)
        if ADDS:
            new = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
            if DROPS:
                new = tl.where(_sixteen(a, b, c, d, i) >= dropped, new * scale, 0.0)
            value = (value.to(tl.float32) + new).to(value.dtype)
            tl.store(total + at, value, mask=there)
        if NORMS:
            value = value.to(tl.float32)
            mean = tl.sum(value, 0) / dim
            value = tl.where(inside, value - mean, 0.0)
            rate = 1.0 / tl.sqrt(tl.sum(value * value, 0) / dim + eps)
            tl.store(normed + at, (value * rate * gain + more).to(normed.dtype.element_ty), mask=there)
            tl.store(kept + 2 * row, mean, mask=row < vectors)
            tl.store(kept + 2 * row + 1, rate, mask=row < vectors)


@jit(varying=("vectors", "programs", "dropped"))
def _backward(
    by_total,
    by_normed,
    total,
    kept,
    weight,
    seed,
    by_x,
    by_y,
    by_affine,
    vectors,
    dim,
    programs,
    dropped,
    scale,
    GIVEN: tl.constexpr,
    NORMS: tl.constexpr,
    DROPS: tl.constexpr,
    BY_X: tl.constexpr,
    BY_Y: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
):
    column = tl.arange(0, LANES)
    inside = column < dim
    if NORMS:
        gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        by_gain, by_more = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for number in range(GROUPS):
        group = tl.program_id(0) * GROUPS + number
        if DROPS:
            a, b, c, d = _numbers(seed, group, LANES)
        for i in tl.static_range(EACH):
            row = group.to(tl.int64) * EACH + i
            at, there = row * dim + column, inside & (row < vectors)
            slope = tl.zeros([LANES], tl.float32)
            if NORMS:
                mean = tl.load(kept + 2 * row, mask=row < vectors, other=0.0)
                rate = tl.load(kept + 2 * row + 1, mask=row < vectors, other=0.0)
                given = tl.load(by_normed + at, mask=there, other=0.0).to(tl.float32)
                hat = (tl.load(total + at, mask=there, other=0.0).to(tl.float32) - mean) * rate
                hat = tl.where(there, hat, 0.0)
                by_gain += given * hat
                by_more += given
                given *= gain
                slope = (given - tl.sum(given, 0) / dim - hat * (tl.sum(given * hat, 0) / dim)) * rate
            if GIVEN:
                slope += tl.load(by_total + at, mask=there, other=0.0).to(tl.float32)
            if BY_X:
                tl.store(by_x + at, slope.to(by_x.dtype.element_ty), mask=there)
            if BY_Y:
                if DROPS:
                    slope = tl.where(_sixteen(a, b, c, d, i) >= dropped, slope * scale, 0.0)
                tl.store(by_y + at, slope.to(by_y.dtype.element_ty), mask=there)
    if NORMS:
        place = by_affine + tl.program_id(0) * dim + column
        tl.store(place, by_gain, mask=inside)
        tl.store(place + programs * dim, by_more, mask=inside)


@jit()
def _numbers(seed, group, LANES: tl.constexpr):
    """Philox with seven rounds, the fewest that pass all tests (Salmon et al. 2011, table 2)."""
    return tl.randint4x(tl.load(seed), group * LANES + tl.arange(0, LANES), 7)


@jit()
def _sixteen(a, b, c, d, i: tl.constexpr):
    """The i-th sixteen bits of four times thirty-two."""
    word = a
    if i // 2 == 1:
        word = b
    if i // 2 == 2:
        word = c
    if i // 2 == 3:
        word = d
    return ((word >> (i % 2 * 16)) & 0xFFFF).to(tl.int32)
