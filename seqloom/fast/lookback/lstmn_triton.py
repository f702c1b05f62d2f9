"""The LSTMN over all its steps, one program for each row, as in `kernels/tape.py`. The backward pass makes the answers
of the small network and the weights of attention anew. The plain twin is `LstmnCell.step`.

Entry s of a tape, h_s and c_s with s = 0 … T, is what stood there before step s + 1; entry 0 may be none.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fast.lookback.attentive_triton import WARPS, grown, places, product, settled, tanh
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

FORWARD, BACKWARD = 8192, 4096  # numbers in a tile of entries: the way back holds six tiles at once


class Weights(NamedTuple):
    """All contiguous and in float32."""

    inner: Tensor  # U [4·dim, dim]
    key: Tensor  # W_h [width, dim]
    query: Tensor  # W_h̃ [width, dim]
    score: Tensor  # v [width]


class Walked(NamedTuple):
    """What a forward pass leaves for those after it."""

    values: Tensor  # [h; c], [R, T + 1, 2·dim]
    read: Tensor  # [h̃; c̃], [R, T + 1, 2·dim], first what came before the first step
    keys: Tensor  # W_h h, [R, T, width]
    queries: Tensor  # [R, T, width]
    open: Tensor  # i, f, g, o, [R, T, 4·dim]
    totals: Tensor  # logarithms of the sums of exponentials, [R, T]


def forward(gates: Tensor, asks: Tensor, first: tuple[Tensor, ...], weights: Weights) -> Walked:
    """Gates W x + b [R, T, 4·dim] and W_x x + b [R, T, width]; h, c and h̃ [R, dim] and whether h and c are an entry
    [R, 1]."""
    (rows, steps, width), (h, c, asked, there), dim = asks.shape, first, first[0].size(1)
    values, read = (asks.new_empty(rows, steps + 1, 2 * dim) for _ in range(2))
    values[:, 0], read[:, 0] = torch.cat([h, c], 1), torch.cat([asked, torch.zeros_like(asked)], 1)
    kept = (torch.empty_like(asks), torch.empty_like(asks), torch.empty_like(gates), asks.new_empty(rows, steps))
    walked = Walked(values, read, *kept)
    turned = [weight.mT.contiguous() for weight in weights[:3]]
    if rows:
        given = (gates, asks, there, *turned, weights.score, *walked)
        _forward[(rows,)](*given, steps, **_tiles(dim, width, FORWARD))
    return walked


class Slopes(NamedTuple):
    """By what the tape holds, which are added to, and by the last h̃."""

    values: Tensor  # [R, T + 1, 2·dim]
    keys: Tensor  # [R, T, width]
    asked: Tensor  # [R, dim]


def backward(slopes: Slopes, there: Tensor, weights: Weights, walked: Walked) -> tuple[Tensor, Tensor, Tensor]:
    """By the gates [R, T, 4·dim], by the queries [R, T, width], and by v for each row, [R, width]."""
    (rows, steps, width), dim = walked.keys.shape, slopes.asked.size(1)
    by_gates, by_queries = torch.empty_like(walked.open), torch.empty_like(walked.queries)
    by_score, by_read = walked.keys.new_empty(rows, width), walked.keys.new_empty(rows, 2 * dim)
    if rows:
        given = (*slopes, by_gates, by_queries, by_score, by_read, there, *weights, *walked)
        _backward[(rows,)](*given, steps, **_tiles(dim, width, BACKWARD))
    return by_gates, by_queries, by_score


def _tiles(dim: int, width: int, elements: int) -> dict[str, int]:
    """Keys and values are alike where they can be: threads then hold the same entries of both."""
    wide = max(16, 1 << (width - 1).bit_length())
    tile = min(64, elements // max(2 * dim, wide))
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
    values,
    read,
    keys,
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
    row, pair, lane = tl.program_id(0).to(tl.int64), tl.arange(0, 2 * D), tl.arange(0, WIDE)
    values += row * (steps + 1) * 2 * D
    read += row * (steps + 1) * 2 * D
    keys += row * steps * WIDTH
    least = tl.where(tl.load(there + row) == 0.0, 1, 0)  # the first entry that is one
    v = tl.load(score + lane, mask=lane < WIDTH, other=0.0)
    for t in range(steps):
        place = (row * steps + t) * WIDTH + lane
        k = product(key, values + t * 2 * D, D, WIDTH, WIDE)
        q = product(query, read + t * 2 * D, D, WIDTH, WIDE) + tl.load(asks + place, mask=lane < WIDTH, other=0.0)
        tl.store(keys + t * WIDTH + lane, k, mask=lane < WIDTH)
        tl.store(queries + place, q, mask=lane < WIDTH)
        tl.debug_barrier()  # the key of the newest entry is there
        found, total = _look(values, keys, q, v, least, t, D, WIDTH, WIDE, TILE)
        tl.store(read + (t + 1) * 2 * D + pair, found)
        tl.store(totals + row * steps + t, total)
        tl.debug_barrier()  # h̃ and c̃ are there
        place = (row * steps + t) * 4 * D
        _step(gates + place, open + place, inner, read + (t + 1) * 2 * D, values + (t + 1) * 2 * D, D)
        tl.debug_barrier()  # so is the next entry


@jit()
def _look(values, keys, q, v, least, t, D: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr):
    """[h̃; c̃] of step t and the logarithm of the sum of exponentials."""
    top, share = tl.full([TILE], -3e38, tl.float32), tl.zeros([TILE], tl.float32)
    pair, found = tl.arange(0, 2 * D)[None, :], tl.zeros([TILE, 2 * D], tl.float32)
    for start in range(0, t + 1, TILE):
        at, keep = places(start, least, t, TILE)
        entry = tl.load(values + at[:, None] * 2 * D + pair, mask=keep[:, None], other=0.0)  # before threads meet
        answer = tanh(_entries(keys, at, keep, WIDTH, WIDE) + q[None, :])
        top, share, kept, weight = grown(tl.sum(answer * v[None, :], 1), keep, top, share)
        found = found * kept[:, None] + weight[:, None] * entry
    factor, total = settled(top, share)
    return tl.sum(found * factor[:, None], 0), total


@jit()
def _entries(keys, at, keep, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Keys of a tile of entries, [TILE, WIDE]."""
    lane = tl.arange(0, WIDE)[None, :]
    return tl.load(keys + at[:, None] * WIDTH + lane, mask=keep[:, None] & (lane < WIDTH), other=0.0)


@jit()
def _step(gates, open, inner, read, values, D: tl.constexpr):
    """An LSTM's step from [h̃; c̃] to [h; c], both in memory. `inner` is U the other way round, [D, 4·D]."""
    column = tl.arange(0, D)
    i = _sigmoid(tl.load(gates + column) + product(inner, read, D, D, D, 4 * D))
    f = _sigmoid(tl.load(gates + D + column) + product(inner + D, read, D, D, D, 4 * D))
    g = tanh(tl.load(gates + 2 * D + column) + product(inner + 2 * D, read, D, D, D, 4 * D))
    o = _sigmoid(tl.load(gates + 3 * D + column) + product(inner + 3 * D, read, D, D, D, 4 * D))
    tl.store(open + column, i)
    tl.store(open + D + column, f)
    tl.store(open + 2 * D + column, g)
    tl.store(open + 3 * D + column, o)
    c = f * tl.load(read + D + column) + i * g
    tl.store(values + column, o * tanh(c))
    tl.store(values + D + column, c)


@jit()
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@jit(varying=("steps",))
def _backward(
    by_values,
    by_keys,
    by_last,
    by_gates,
    by_queries,
    by_score,
    by_read,
    there,
    inner,
    key,
    query,
    score,
    values,
    read,
    keys,
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
    values += row * (steps + 1) * 2 * D
    by_values += row * (steps + 1) * 2 * D
    read += row * (steps + 1) * 2 * D
    by_read += row * 2 * D
    keys += row * steps * WIDTH
    by_keys += row * steps * WIDTH
    by_queries += row * steps * WIDTH
    least = tl.where(tl.load(there + row) == 0.0, 1, 0)
    v, by_v = tl.load(score + lane, mask=lane < WIDTH, other=0.0), tl.zeros([TILE, WIDE], tl.float32)
    for back in range(steps):
        t = steps - 1 - back
        by_h = tl.load(by_values + (t + 1) * 2 * D + column)
        if back > 0:  # the entry was found by its key, and h̃ asked the next step's question
            by_h += product(key, by_keys + (t + 1) * WIDTH, WIDTH, D, D)
            by_asked = product(query, by_queries + (t + 1) * WIDTH, WIDTH, D, D)
        else:
            by_asked = tl.load(by_last + row * D + column)
        place, after = (row * steps + t) * 4 * D, (t + 1) * 2 * D
        _step_back(by_h, by_values + after, values + after, read + after, open + place, by_gates + place, by_read, D)
        tl.debug_barrier()  # slopes by the gates are there
        tl.store(by_read + column, by_asked + product(inner, by_gates + place, 4 * D, D, D))
        tl.debug_barrier()  # those by h̃ and c̃ too
        q = tl.load(queries + (row * steps + t) * WIDTH + lane, mask=lane < WIDTH, other=0.0)
        total = tl.load(totals + row * steps + t)
        given = (values, by_values, keys, by_keys)
        by_q, by_v = _look_back(given, by_read, read + after, q, v, by_v, total, least, t, D, WIDTH, WIDE, TILE)
        tl.store(by_queries + t * WIDTH + lane, by_q, mask=lane < WIDTH)
        tl.debug_barrier()  # what was added is there for the step before
    tl.store(by_score + row * WIDTH + lane, tl.sum(by_v, 0), mask=lane < WIDTH)


@jit()
def _step_back(by_h, by_values, values, read, open, by_gates, by_read, D: tl.constexpr):
    """Slopes by the gates and the one by c̃, each to its place."""
    column = tl.arange(0, D)
    i, f = tl.load(open + column), tl.load(open + D + column)
    g, o = tl.load(open + 2 * D + column), tl.load(open + 3 * D + column)
    inside = tanh(tl.load(values + D + column))
    by_c = tl.load(by_values + D + column) + by_h * o * (1.0 - inside * inside)
    tl.store(by_gates + column, by_c * g * i * (1.0 - i))
    tl.store(by_gates + D + column, by_c * tl.load(read + D + column) * f * (1.0 - f))
    tl.store(by_gates + 2 * D + column, by_c * i * (1.0 - g * g))
    tl.store(by_gates + 3 * D + column, by_h * inside * o * (1.0 - o))
    tl.store(by_read + D + column, by_c * f)


@jit()
def _look_back(
    given,
    by_read,
    read,
    q,
    v,
    by_v,
    total,
    least,
    t,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """The slope by the query of step t, and the one by v, which is added to; so are those by keys and values."""
    values, by_values, keys, by_keys = given
    pair, lane = tl.arange(0, 2 * D), tl.arange(0, WIDE)[None, :]
    slope, by_q = tl.load(by_read + pair), tl.zeros([TILE, WIDE], tl.float32)
    mean = tl.sum(slope * tl.load(read + pair), 0)  # Σ_i α_ti [h_i; c_i]·slope
    for start in range(0, t + 1, TILE):
        at, keep = places(start, least, t, TILE)
        place = at[:, None] * 2 * D + pair[None, :]
        # All at once, before threads meet for the first time.
        entry = tl.load(values + place, mask=keep[:, None], other=0.0)
        by_entry = tl.load(by_values + place, mask=keep[:, None], other=0.0)
        by_key = _entries(by_keys, at, keep, WIDTH, WIDE)
        answer = tanh(_entries(keys, at, keep, WIDTH, WIDE) + q[None, :])
        weight = tl.exp(tl.where(keep, tl.sum(answer * v[None, :], 1) - total, -3e38))
        tl.store(by_values + place, by_entry + weight[:, None] * slope[None, :], mask=keep[:, None])
        by_scored = weight * (tl.sum(entry * slope[None, :], 1) - mean)
        by_v += by_scored[:, None] * answer
        inside = by_scored[:, None] * v[None, :] * (1.0 - answer * answer)
        by_q += inside
        at_key, there = at[:, None] * WIDTH + lane, keep[:, None] & (lane < WIDTH)
        tl.store(by_keys + at_key, by_key + inside, mask=there)
    return tl.sum(by_q, 0), by_v
