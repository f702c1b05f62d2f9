"""The attentive RNN over all its steps, one program for each row: it walks over time inside, so that a step costs no
launch. The backward pass makes the weights of attention anew from the logarithm of their sum. The plain twin is
`AttentiveCell.step`.

What one thread writes to memory others read in a later part of a step: a barrier stands between the two.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

WARPS = 8
ELEMENTS = 8192  # numbers in a tile of entries: 32 registers of a thread, and a pass holds a few tiles at once


def forward(gates: Tensor, inner: Tensor, first: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gates W x + b [R, T, dim], U [dim, dim] and c_0 [R, dim], in float32 -> c_0 … c_T [R, T + 1, dim], h [R, T, dim]
    and the logarithm of the sum of exponentials [R, T], by which the weights of a step come back."""
    rows, steps, dim = gates.shape
    mixed, tape, totals = gates.new_empty(rows, steps + 1, dim), torch.empty_like(gates), gates.new_empty(rows, steps)
    mixed[:, 0] = first
    if rows:
        _forward[(rows,)](gates, inner.mT.contiguous(), mixed, tape, totals, scale, steps, **_tiles(dim, ELEMENTS))
    return mixed, tape, totals


def backward(
    by_mixed: Tensor, by_tape: Tensor, inner: Tensor, kept: tuple[Tensor, Tensor, Tensor], scale: float
) -> Tensor:
    """The slope by the gates, [R, T, dim], from those by c_0 … c_T and by h. `by_tape` is written over."""
    rows, steps, dim = by_tape.shape
    by_gates = torch.empty_like(by_tape)
    if rows:
        _backward[(rows,)](by_mixed, by_tape, by_gates, inner, *kept, scale, steps, **_tiles(dim, _elements(dim)))
    return by_gates


def _tiles(dim: int, elements: int) -> dict[str, int]:
    """No stages: nothing of a tape may be fetched before the barrier that makes it whole."""
    return {"D": dim, "TILE": min(64, elements // dim), "num_warps": WARPS, "num_stages": 1}


def _elements(dim: int) -> int:
    """Of a tile on the way back: at the widest, registers would not do for more."""
    return ELEMENTS if dim < 256 else ELEMENTS // 2


@jit(varying=("steps",))
def _forward(gates, inner, mixed, tape, totals, scale, steps, D: tl.constexpr, TILE: tl.constexpr):
    """h_t = tanh(g_t + U c_{t−1}); c_t = Σ_s α_ts h_s over s ≤ t. `inner` is Uᵀ."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    tape += row * steps * D
    gates += row * steps * D
    mixed += row * (steps + 1) * D
    for t in range(steps):
        h = tanh(tl.load(gates + t * D + column) + product(inner, mixed + t * D, D, D, D))
        tl.store(tape + t * D + column, h)
        tl.debug_barrier()  # h_t is on the tape
        top, share, found = (
            tl.full([TILE], -3e38, tl.float32),
            tl.zeros([TILE], tl.float32),
            tl.zeros([TILE, D], tl.float32),
        )
        for start in range(0, t + 1, TILE):
            at, keep = places(start, 0, t, TILE)
            entry = tl.load(tape + at[:, None] * D + column[None, :], mask=keep[:, None], other=0.0)
            top, share, kept, weight = grown(tl.sum(entry * h[None, :], 1) * scale, keep, top, share)
            found = found * kept[:, None] + entry * weight[:, None]
        factor, total = settled(top, share)
        tl.store(mixed + (t + 1) * D + column, tl.sum(found * factor[:, None], 0))
        tl.store(totals + row * steps + t, total)
        tl.debug_barrier()  # c_t is there for the next step


@jit(varying=("steps",))
def _backward(
    by_mixed,
    by_tape,
    by_gates,
    inner,
    mixed,
    tape,
    totals,
    scale,
    steps,
    D: tl.constexpr,
    TILE: tl.constexpr,
):
    """From the last step to the first. The slope by what stands on the tape is added up in `by_tape`."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    tape += row * steps * D
    by_tape += row * steps * D
    by_gates += row * steps * D
    mixed += row * (steps + 1) * D
    by_mixed += row * (steps + 1) * D
    for back in range(steps):
        t = steps - 1 - back
        by_c = tl.load(by_mixed + (t + 1) * D + column)
        if back > 0:
            by_c += product(inner, by_gates + (t + 1) * D, D, D, D)
        h, total = tl.load(tape + t * D + column), tl.load(totals + row * steps + t)
        mean = tl.sum(by_c * tl.load(mixed + (t + 1) * D + column), 0)  # Σ_s α_ts h_s·slope
        by_query = tl.zeros([TILE, D], tl.float32)
        for start in range(0, t + 1, TILE):
            at, keep = places(start, 0, t, TILE)
            place = at[:, None] * D + column[None, :]
            # Both at once, before anything waits for one of them.
            entry = tl.load(tape + place, mask=keep[:, None], other=0.0)
            by_entry = tl.load(by_tape + place, mask=keep[:, None], other=0.0)
            weight = tl.exp(tl.where(keep, tl.sum(entry * h[None, :], 1) * scale - total, -3e38))
            by_score = weight * (tl.sum(entry * by_c[None, :], 1) - mean) * scale
            by_query += by_score[:, None] * entry
            by_entry += weight[:, None] * by_c[None, :] + by_score[:, None] * h[None, :]
            tl.store(by_tape + place, by_entry, mask=keep[:, None])
        tl.debug_barrier()  # the slope by h_t as an entry is whole
        by_h = tl.load(by_tape + t * D + column) + tl.sum(by_query, 0)
        tl.store(by_gates + t * D + column, by_h * (1.0 - h * h))
        tl.debug_barrier()  # that by its gates is there for the step before


@jit()
def tanh(x):
    """Exact to 1e-7."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@jit()
def product(matrix, vector, COUNT: tl.constexpr, OUT: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr = 0):
    """A vector [COUNT] times a matrix [COUNT, OUT], both in memory -> [WIDE], zeros beyond OUT. Rows of the matrix lie
    STEP apart, or one after the other. Threads meet once, at the end."""
    ROWS: tl.constexpr = min(64, 8192 // WIDE)
    APART: tl.constexpr = STEP if STEP else OUT
    column, total = tl.arange(0, WIDE), tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, COUNT, ROWS):
        at = start + tl.arange(0, ROWS)
        there = (at < COUNT)[:, None] & (column < OUT)[None, :]
        some = tl.load(matrix + at[:, None] * APART + column[None, :], mask=there, other=0.0)
        total += some * tl.load(vector + at, mask=at < COUNT, other=0.0)[:, None]
    return tl.sum(total, 0)


@jit()
def places(start, least, t, TILE: tl.constexpr):
    """The entries of a tile, and which of them are among the entries `least` … t."""
    at = start + tl.arange(0, TILE)
    return at, (at >= least) & (at <= t)


@jit()
def grown(score, keep, top, share):
    """One more tile of a softmax. Each place of the tile has a largest score and a sum of its own, [TILE], so that
    threads need not meet before the last tile. Gives both, by how much what was mixed shrinks, and the new weights."""
    score = tl.where(keep, score, -3e38)
    highest = tl.maximum(top, score)
    kept, weight = tl.exp(top - highest), tl.where(keep, tl.exp(score - highest), 0.0)
    return highest, share * kept + weight, kept, weight


@jit()
def settled(top, share):
    """What every place counts by, [TILE], and the logarithm of the sum of all exponentials. Zeros if nothing was seen,
    since then nothing was mixed."""
    peak = tl.max(top, 0)
    factor = tl.exp(top - peak)
    total = tl.sum(share * factor, 0)
    total = tl.where(total > 0.0, total, 1.0)
    return factor / total, peak + tl.log(total)
