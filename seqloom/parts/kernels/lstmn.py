"""The LSTMN over all its steps, one program for each row, as in `kernels/tape.py`. The backward pass makes the answers
of the small network and the weights of attention anew. The plain twin is `LstmnCell.step`.

Entry s of a tape, h_s and c_s with s = 0 … T, is what stood there before step s + 1; entry 0 may be none.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.parts.kernels import jit
from seqloom.parts.kernels.tape import WARPS, grown, places, product, settled, tanh

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

ELEMENTS = 4096  # of a tile of keys: 16 registers of a thread, and the backward pass holds six such tiles


class Weights(NamedTuple):
    """All contiguous and in float32."""

    inner: Tensor  # U [4·dim, dim]
    key: Tensor  # W_h [width, dim]
    query: Tensor  # W_h̃ [width, dim]
    score: Tensor  # v [width]


class Walked(NamedTuple):
    """What a forward pass leaves for those after it."""

    h: Tensor  # [R, T + 1, dim]
    c: Tensor  # [R, T + 1, dim]
    asked: Tensor  # h̃, [R, T + 1, dim], first what came before the first step
    keys: Tensor  # W_h h, [R, T, width]
    mixed: Tensor  # c̃, [R, T, dim]
    queries: Tensor  # [R, T, width]
    open: Tensor  # i, f, g, o, [R, T, 4·dim]
    totals: Tensor  # logarithms of the sums of exponentials, [R, T]


def forward(gates: Tensor, asks: Tensor, first: tuple[Tensor, ...], weights: Weights) -> Walked:
    """Gates W x + b [R, T, 4·dim] and W_x x + b [R, T, width]; h, c and h̃ [R, dim] and whether h and c are an entry
    [R, 1]."""
    (rows, steps, width), dim = asks.shape, first[0].size(1)
    h, c, asked = (asks.new_empty(rows, steps + 1, dim) for _ in range(3))
    for whole, part in zip((h, c, asked), first, strict=False):
        whole[:, 0] = part
    walked = Walked(
        h,
        c,
        asked,
        keys=torch.empty_like(asks),
        mixed=asks.new_empty(rows, steps, dim),
        queries=torch.empty_like(asks),
        open=torch.empty_like(gates),
        totals=asks.new_empty(rows, steps),
    )
    turned = [weight.mT.contiguous() for weight in weights[:3]]
    if rows:
        given = (gates, asks, first[3].contiguous(), *turned, weights.score, *walked)
        _forward[(rows,)](*given, steps, **_tiles(dim, width))
    return walked


class Slopes(NamedTuple):
    """Those by what the tape holds, which are added to, and by the last h̃."""

    h: Tensor  # [R, T + 1, dim]
    c: Tensor  # [R, T + 1, dim]
    keys: Tensor  # [R, T, width]
    asked: Tensor  # [R, dim]


def backward(slopes: Slopes, there: Tensor, weights: Weights, walked: Walked) -> tuple[Tensor, Tensor, Tensor]:
    """By the gates [R, T, 4·dim], by the queries [R, T, width], and by v for each row, [R, width]."""
    (rows, steps, width), dim = walked.keys.shape, walked.mixed.size(2)
    by_gates, by_queries = torch.empty_like(walked.open), torch.empty_like(walked.queries)
    by_score = walked.keys.new_empty(rows, width)
    if rows:
        found = (by_gates, by_queries, by_score)
        given = (*slopes, *found, there.contiguous(), *weights, *walked)
        _backward[(rows,)](*given, steps, **_tiles(dim, width))
    return by_gates, by_queries, by_score


def _tiles(dim: int, width: int) -> dict[str, int]:
    wide = max(16, 1 << (width - 1).bit_length())
    tile = min(64, ELEMENTS // max(dim, wide))
    return {"D": dim, "WIDTH": width, "WIDE": wide, "TILE": tile, "num_warps": WARPS, "num_stages": 1}


@jit(varying=("steps",))
def _forward(
    gates,
    asks,
    there,
    inner,
    key,
    query,
    score,
    h,
    c,
    asked,
    keys,
    mixed,
    queries,
    open,
    totals,
    steps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Matrices are given the other way round, [dim, …]."""
    row, column, lane = tl.program_id(0).to(tl.int64), tl.arange(0, D), tl.arange(0, WIDE)
    step, entry = row * steps, row * (steps + 1)  # of the row, where there are T and T + 1 of them
    h += entry * D
    c += entry * D
    asked += entry * D
    keys += step * WIDTH
    least = tl.where(tl.load(there + row) == 0.0, 1, 0)  # the first entry that is one
    v = tl.load(score + lane, mask=lane < WIDTH, other=0.0)
    for t in range(steps):
        k = product(key, h + t * D, D, WIDTH, WIDE, TILE)
        q = product(query, asked + t * D, D, WIDTH, WIDE, TILE)
        q += tl.load(asks + (step + t) * WIDTH + lane, mask=lane < WIDTH, other=0.0)
        tl.store(keys + t * WIDTH + lane, k, mask=lane < WIDTH)
        tl.store(queries + (step + t) * WIDTH + lane, q, mask=lane < WIDTH)
        tl.debug_barrier()  # the key of the newest entry is there
        found, memory, total = _look(h, c, keys, q, v, t, least, D, WIDTH, WIDE, TILE)
        tl.store(asked + (t + 1) * D + column, found)
        tl.store(mixed + (step + t) * D + column, memory)
        tl.store(totals + step + t, total)
        tl.debug_barrier()  # h̃ is there
        place = (step + t) * 4 * D + column
        _step(
            gates + place, open + place, inner, asked + (t + 1) * D, memory, h + (t + 1) * D, c + (t + 1) * D, D, TILE
        )
        tl.debug_barrier()  # so is the next entry


@jit()
def _look(h, c, keys, q, v, t, least, D: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr):
    """h̃ and c̃ of step t, each [D], and the logarithm of the sum of exponentials."""
    column = tl.arange(0, D)[None, :]
    top, share = tl.full([TILE], -3e38, tl.float32), tl.zeros([TILE], tl.float32)
    found, memory = tl.zeros([TILE, D], tl.float32), tl.zeros([TILE, D], tl.float32)
    for start in range(0, t + 1, TILE):
        at, keep = places(start, t, TILE)
        keep = keep & (at >= least)
        answer = _answers(keys, q, at, keep, WIDTH, WIDE)
        top, share, kept, weight = grown(tl.sum(answer * v[None, :], 1), keep, top, share)
        place = at[:, None] * D + column
        found = found * kept[:, None] + weight[:, None] * tl.load(h + place, mask=keep[:, None], other=0.0)
        memory = memory * kept[:, None] + weight[:, None] * tl.load(c + place, mask=keep[:, None], other=0.0)
    factor, total = settled(top, share)
    return tl.sum(found * factor[:, None], 0), tl.sum(memory * factor[:, None], 0), total


@jit()
def _answers(keys, q, at, keep, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """tanh(k_i + q) for a tile of entries, [TILE, WIDE]."""
    lane = tl.arange(0, WIDE)[None, :]
    key = tl.load(keys + at[:, None] * WIDTH + lane, mask=keep[:, None] & (lane < WIDTH), other=0.0)
    return tanh(key + q[None, :])


@jit()
def _step(gates, open, inner, asked, memory, h, c, D: tl.constexpr, TILE: tl.constexpr):
    """An LSTM's step from h̃ in memory and c̃."""
    i = _sigmoid(tl.load(gates) + _gate(inner, asked, 0, D, TILE))
    f = _sigmoid(tl.load(gates + D) + _gate(inner, asked, 1, D, TILE))
    g = tanh(tl.load(gates + 2 * D) + _gate(inner, asked, 2, D, TILE))
    o = _sigmoid(tl.load(gates + 3 * D) + _gate(inner, asked, 3, D, TILE))
    tl.store(open, i)
    tl.store(open + D, f)
    tl.store(open + 2 * D, g)
    tl.store(open + 3 * D, o)
    after, column = f * memory + i * g, tl.arange(0, D)
    tl.store(c + column, after)
    tl.store(h + column, o * tanh(after))


@jit()
def _gate(inner, asked, GATE: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr):
    """U h̃ of one gate, [D], by U the other way round, [D, 4·D]."""
    column, total = tl.arange(0, D), tl.zeros([TILE, D], tl.float32)
    for start in range(0, D, TILE):
        at = start + tl.arange(0, TILE)
        some = tl.load(inner + at[:, None] * (4 * D) + GATE * D + column[None, :], mask=(at < D)[:, None], other=0.0)
        total += some * tl.load(asked + at, mask=at < D, other=0.0)[:, None]
    return tl.sum(total, 0)


@jit()
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@jit(varying=("steps",))
def _backward(
    by_h,
    by_c,
    by_keys,
    by_last,
    by_gates,
    by_queries,
    by_score,
    there,
    inner,
    key,
    query,
    score,
    h,
    c,
    asked,
    keys,
    mixed,
    queries,
    open,
    totals,
    steps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """From the last step to the first. Slopes by what stands on the tape are added up in memory."""
    row, column, lane = tl.program_id(0).to(tl.int64), tl.arange(0, D), tl.arange(0, WIDE)
    step, entry = row * steps, row * (steps + 1)
    h += entry * D
    c += entry * D
    by_h += entry * D
    by_c += entry * D
    keys += step * WIDTH
    by_keys += step * WIDTH
    by_queries += step * WIDTH
    least = tl.where(tl.load(there + row) == 0.0, 1, 0)  # the first entry that is one
    v, by_v = tl.load(score + lane, mask=lane < WIDTH, other=0.0), tl.zeros([TILE, WIDE], tl.float32)
    for back in range(steps):
        t = steps - 1 - back
        slope = tl.load(by_h + (t + 1) * D + column)
        if back > 0:  # the entry was looked at by its key, and h̃ asked the next step's question
            slope += product(key, by_keys + (t + 1) * WIDTH, WIDTH, D, D, TILE)
            by_asked = product(query, by_queries + (t + 1) * WIDTH, WIDTH, D, D, TILE)
        else:
            by_asked = tl.load(by_last + row * D + column)
        place = (step + t) * 4 * D + column
        memory = tl.load(mixed + (step + t) * D + column)
        by_after = tl.load(by_c + (t + 1) * D + column)
        after = tl.load(c + (t + 1) * D + column)
        by_memory = _step_back(slope, by_after, after, memory, open + place, by_gates + place, D)
        tl.debug_barrier()  # slopes by the gates are there
        by_asked += product(inner, by_gates + (step + t) * 4 * D, 4 * D, D, D, TILE)
        mean = tl.sum(by_asked * tl.load(asked + (entry + t + 1) * D + column) + by_memory * memory, 0)
        q = tl.load(queries + (step + t) * WIDTH + lane, mask=lane < WIDTH, other=0.0)
        total, by_query = tl.load(totals + step + t), tl.zeros([TILE, WIDE], tl.float32)
        for start in range(0, t + 1, TILE):
            at, keep = places(start, t, TILE)
            keep = keep & (at >= least)
            answer = _answers(keys, q, at, keep, WIDTH, WIDE)
            weight = tl.where(keep, tl.exp(tl.sum(answer * v[None, :], 1) - total), 0.0)
            by_weight = _values_back(h, c, by_h, by_c, by_asked, by_memory, weight, at, keep, D)
            by_scored = weight * (by_weight - mean)
            by_v += by_scored[:, None] * answer
            inside = by_scored[:, None] * v[None, :] * (1.0 - answer * answer)
            by_query += inside
            _add(by_keys + at[:, None] * WIDTH + lane[None, :], inside, keep[:, None] & (lane < WIDTH)[None, :])
        tl.store(by_queries + t * WIDTH + lane, tl.sum(by_query, 0), mask=lane < WIDTH)
        tl.debug_barrier()  # what was added is there for the step before
    tl.store(by_score + row * WIDTH + lane, tl.sum(by_v, 0), mask=lane < WIDTH)


@jit()
def _step_back(by_h, by_c, after, memory, open, by_gates, D: tl.constexpr):
    """Slopes by the gates, to their place, and the one by c̃."""
    i, f = tl.load(open), tl.load(open + D)
    g, o = tl.load(open + 2 * D), tl.load(open + 3 * D)
    inside = tanh(after)
    by_c += by_h * o * (1.0 - inside * inside)
    tl.store(by_gates, by_c * g * i * (1.0 - i))
    tl.store(by_gates + D, by_c * memory * f * (1.0 - f))
    tl.store(by_gates + 2 * D, by_c * i * (1.0 - g * g))
    tl.store(by_gates + 3 * D, by_h * inside * o * (1.0 - o))
    return by_c * f


@jit()
def _values_back(h, c, by_h, by_c, by_asked, by_memory, weight, at, keep, D: tl.constexpr):
    """Slopes by the weights of a tile of entries, [TILE]; those by h and c of the entries are added up."""
    place = at[:, None] * D + tl.arange(0, D)[None, :]
    by_weight = tl.sum(tl.load(h + place, mask=keep[:, None], other=0.0) * by_asked[None, :], 1)
    by_weight += tl.sum(tl.load(c + place, mask=keep[:, None], other=0.0) * by_memory[None, :], 1)
    _add(by_h + place, weight[:, None] * by_asked[None, :], keep[:, None])
    _add(by_c + place, weight[:, None] * by_memory[None, :], keep[:, None])
    return by_weight


@jit()
def _add(place, value, keep):
    tl.store(place, tl.load(place, mask=keep, other=0.0) + value, mask=keep)
