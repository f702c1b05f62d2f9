"""The LSTMN over all its steps, one program for each row, as in `attentive_triton.py`. Backward recomputes the hidden
vectors of the scoring network and the attention weights. The reference is `LstmnCell.step`.

Entry s of the history, (h_s, c_s) with s = 0 … T, is the state before step s + 1; entry 0 may be masked.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fast.recurrent.attentive_triton import (
    WARPS,
    softmax_finish,
    softmax_update,
    tanh,
    tile_entries,
    vector_matmul,
)
from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

FORWARD_ELEMENTS, BACKWARD_ELEMENTS = 8192, 4096  # in a tile of entries; backward holds six tiles at once


class Weights(NamedTuple):
    """All contiguous and in float32."""

    inner: Tensor  # U [4·dim, dim]
    key: Tensor  # W_h [width, dim]
    query: Tensor  # W_h̃ [width, dim]
    score: Tensor  # v [width]


class Saved(NamedTuple):
    """What backward needs."""

    values: Tensor  # [h; c], [R, T + 1, 2·dim]
    mix: Tensor  # [h̃; c̃], [R, T + 1, 2·dim], the first from before the first step
    keys: Tensor  # W_h h, [R, T, width]
    queries: Tensor  # [R, T, width]
    acts: Tensor  # i, f, g, o, [R, T, 4·dim]
    log_sums: Tensor  # log-sum-exp of the scores, [R, T]


def forward(gates: Tensor, query_inputs: Tensor, first: tuple[Tensor, ...], weights: Weights) -> Saved:
    """Gates W x + b [R, T, 4·dim] and W_x x + b [R, T, width]; `first`: h, c and h̃ [R, dim], and whether (h, c)
    is in the history [R, 1]."""
    (rows, steps, width), (h, c, summary, has_first), dim = query_inputs.shape, first, first[0].size(1)
    values, mix = (query_inputs.new_empty(rows, steps + 1, 2 * dim) for _ in range(2))
    values[:, 0], mix[:, 0] = torch.cat([h, c], 1), torch.cat([summary, torch.zeros_like(summary)], 1)
    keys, queries, acts = torch.empty_like(query_inputs), torch.empty_like(query_inputs), torch.empty_like(gates)
    saved = Saved(values, mix, keys, queries, acts, query_inputs.new_empty(rows, steps))
    transposed = [weight.mT.contiguous() for weight in weights[:3]]
    if rows:
        pointers = (gates, query_inputs, has_first, *transposed, weights.score, *saved)
        _forward[(rows,)](*pointers, steps, **_tiles(dim, width, FORWARD_ELEMENTS))
    return saved


class Grads(NamedTuple):
    """Gradients of the history, which `backward` adds to, and of the last h̃."""

    values: Tensor  # [R, T + 1, 2·dim]
    keys: Tensor  # [R, T, width]
    summary: Tensor  # [R, dim]


def backward(grads: Grads, has_first: Tensor, weights: Weights, saved: Saved) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates [R, T, 4·dim], of the queries [R, T, width], and of v for each row [R, width]."""
    (rows, steps, width), dim = saved.keys.shape, grads.summary.size(1)
    grad_gates, grad_queries = torch.empty_like(saved.acts), torch.empty_like(saved.queries)
    grad_score, grad_mix = saved.keys.new_empty(rows, width), saved.keys.new_empty(rows, 2 * dim)
    if rows:
        pointers = (*grads, grad_gates, grad_queries, grad_score, grad_mix, has_first, *weights, *saved)
        _backward[(rows,)](*pointers, steps, **_tiles(dim, width, BACKWARD_ELEMENTS))
    return grad_gates, grad_queries, grad_score


def _tiles(dim: int, width: int, elements: int) -> dict[str, int]:
    """Tiles of keys and values have the same rows, so that threads hold the same entries of both."""
    padded_width = max(16, 1 << (width - 1).bit_length())
    tile = min(64, elements // max(2 * dim, padded_width))
    return {"D": dim, "WIDTH": width, "WIDE": padded_width, "TILE": tile, "num_warps": WARPS, "num_stages": 1}


@jit(varying=("steps",))
def _forward(
    gates,
    query_inputs,
    has_first,
    inner,
    key,
    query,
    score,
    values,
    mix,
    keys,
    queries,
    acts,
    log_sums,
    steps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Matrices are transposed, [dim, …]."""
    row, columns, lane = tl.program_id(0).to(tl.int64), tl.arange(0, 2 * D), tl.arange(0, WIDE)
    values += row * (steps + 1) * 2 * D
    mix += row * (steps + 1) * 2 * D
    keys += row * steps * WIDTH
    first = tl.where(tl.load(has_first + row) == 0.0, 1, 0)  # entry 0 may be masked
    v = tl.load(score + lane, mask=lane < WIDTH, other=0.0)
    for t in range(steps):
        offset = (row * steps + t) * WIDTH + lane
        k = vector_matmul(key, values + t * 2 * D, D, WIDTH, WIDE)
        q = vector_matmul(query, mix + t * 2 * D, D, WIDTH, WIDE) + tl.load(
            query_inputs + offset, mask=lane < WIDTH, other=0.0
        )
        tl.store(keys + t * WIDTH + lane, k, mask=lane < WIDTH)
        tl.store(queries + offset, q, mask=lane < WIDTH)
        tl.debug_barrier()  # the newest key is stored
        context, lse = _attend(values, keys, q, v, first, t, D, WIDTH, WIDE, TILE)
        tl.store(mix + (t + 1) * 2 * D + columns, context)
        tl.store(log_sums + row * steps + t, lse)
        tl.debug_barrier()  # h̃ and c̃ are stored
        offset = (row * steps + t) * 4 * D
        _step(gates + offset, acts + offset, inner, mix + (t + 1) * 2 * D, values + (t + 1) * 2 * D, D)
        tl.debug_barrier()  # the next entry is stored


@jit()
def _attend(values, keys, q, v, first, t, D: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr):
    """[h̃; c̃] of step t and the log-sum-exp of its scores."""
    maximum, exp_sum = tl.full([TILE], -3e38, tl.float32), tl.zeros([TILE], tl.float32)
    columns, context = tl.arange(0, 2 * D)[None, :], tl.zeros([TILE, 2 * D], tl.float32)
    for start in range(0, t + 1, TILE):
        index, mask = tile_entries(start, first, t, TILE)
        entry = tl.load(
            values + index[:, None] * 2 * D + columns, mask=mask[:, None], other=0.0
        )  # issued before threads synchronize
        hidden = tanh(_tile_keys(keys, index, mask, WIDTH, WIDE) + q[None, :])
        maximum, exp_sum, rescale, weight = softmax_update(tl.sum(hidden * v[None, :], 1), mask, maximum, exp_sum)
        context = context * rescale[:, None] + weight[:, None] * entry
    factor, lse = softmax_finish(maximum, exp_sum)
    return tl.sum(context * factor[:, None], 0), lse


@jit()
def _tile_keys(keys, index, mask, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Keys of a tile of entries, [TILE, WIDE]."""
    lane = tl.arange(0, WIDE)[None, :]
    return tl.load(keys + index[:, None] * WIDTH + lane, mask=mask[:, None] & (lane < WIDTH), other=0.0)


@jit()
def _step(gates, acts, inner, mix, values, D: tl.constexpr):
    """An LSTM step from [h̃; c̃] to [h; c], both in memory. `inner` is Uᵀ [D, 4·D]."""
    column = tl.arange(0, D)
    i = _sigmoid(tl.load(gates + column) + vector_matmul(inner, mix, D, D, D, 4 * D))
    f = _sigmoid(tl.load(gates + D + column) + vector_matmul(inner + D, mix, D, D, D, 4 * D))
    g = tanh(tl.load(gates + 2 * D + column) + vector_matmul(inner + 2 * D, mix, D, D, D, 4 * D))
    o = _sigmoid(tl.load(gates + 3 * D + column) + vector_matmul(inner + 3 * D, mix, D, D, D, 4 * D))
    tl.store(acts + column, i)
    tl.store(acts + D + column, f)
    tl.store(acts + 2 * D + column, g)
    tl.store(acts + 3 * D + column, o)
    c = f * tl.load(mix + D + column) + i * g
    tl.store(values + column, o * tanh(c))
    tl.store(values + D + column, c)


@jit()
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@jit(varying=("steps",))
def _backward(
    grad_values,
    grad_keys,
    grad_last,
    grad_gates,
    grad_queries,
    grad_score,
    grad_mix,
    has_first,
    inner,
    key,
    query,
    score,
    values,
    mix,
    keys,
    queries,
    acts,
    log_sums,
    steps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """From the last step to the first. Gradients of the history are accumulated in memory."""
    row, column, lane = tl.program_id(0).to(tl.int64), tl.arange(0, D), tl.arange(0, WIDE)
    values += row * (steps + 1) * 2 * D
    grad_values += row * (steps + 1) * 2 * D
    mix += row * (steps + 1) * 2 * D
    grad_mix += row * 2 * D
    keys += row * steps * WIDTH
    grad_keys += row * steps * WIDTH
    grad_queries += row * steps * WIDTH
    first = tl.where(tl.load(has_first + row) == 0.0, 1, 0)
    v, grad_v = tl.load(score + lane, mask=lane < WIDTH, other=0.0), tl.zeros([TILE, WIDE], tl.float32)
    for back in range(steps):
        t = steps - 1 - back
        grad_h = tl.load(grad_values + (t + 1) * 2 * D + column)
        if back > 0:  # the entry had a key, and h̃ was part of the next query
            grad_h += vector_matmul(key, grad_keys + (t + 1) * WIDTH, WIDTH, D, D)
            grad_h_mix = vector_matmul(query, grad_queries + (t + 1) * WIDTH, WIDTH, D, D)
        else:
            grad_h_mix = tl.load(grad_last + row * D + column)
        offset, after = (row * steps + t) * 4 * D, (t + 1) * 2 * D
        _step_backward(
            grad_h, grad_values + after, values + after, mix + after, acts + offset, grad_gates + offset, grad_mix, D
        )
        tl.debug_barrier()  # gradients of the gates are stored
        tl.store(grad_mix + column, grad_h_mix + vector_matmul(inner, grad_gates + offset, 4 * D, D, D))
        tl.debug_barrier()  # gradients of h̃ and c̃ are stored
        q = tl.load(queries + (row * steps + t) * WIDTH + lane, mask=lane < WIDTH, other=0.0)
        lse = tl.load(log_sums + row * steps + t)
        pointers = (values, grad_values, keys, grad_keys)
        grad_q, grad_v = _attend_backward(
            pointers, grad_mix, mix + after, q, v, grad_v, lse, first, t, D, WIDTH, WIDE, TILE
        )
        tl.store(grad_queries + t * WIDTH + lane, grad_q, mask=lane < WIDTH)
        tl.debug_barrier()  # accumulated gradients are stored for the previous step
    tl.store(grad_score + row * WIDTH + lane, tl.sum(grad_v, 0), mask=lane < WIDTH)


@jit()
def _step_backward(grad_h, grad_values, values, mix, acts, grad_gates, grad_mix, D: tl.constexpr):
    """Writes the gradients of the gates and of c̃."""
    column = tl.arange(0, D)
    i, f = tl.load(acts + column), tl.load(acts + D + column)
    g, o = tl.load(acts + 2 * D + column), tl.load(acts + 3 * D + column)
    tanh_c = tanh(tl.load(values + D + column))
    grad_c = tl.load(grad_values + D + column) + grad_h * o * (1.0 - tanh_c * tanh_c)
    tl.store(grad_gates + column, grad_c * g * i * (1.0 - i))
    tl.store(grad_gates + D + column, grad_c * tl.load(mix + D + column) * f * (1.0 - f))
    tl.store(grad_gates + 2 * D + column, grad_c * i * (1.0 - g * g))
    tl.store(grad_gates + 3 * D + column, grad_h * tanh_c * o * (1.0 - o))
    tl.store(grad_mix + D + column, grad_c * f)


@jit()
def _attend_backward(
    pointers,
    grad_mix,
    mix,
    q,
    v,
    grad_v,
    lse,
    first,
    t,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
):
    """The gradient of the query of step t. Adds to those of v, keys and values."""
    values, grad_values, keys, grad_keys = pointers
    columns, lane = tl.arange(0, 2 * D), tl.arange(0, WIDE)[None, :]
    grad_summary, grad_q = tl.load(grad_mix + columns), tl.zeros([TILE, WIDE], tl.float32)
    mean = tl.sum(grad_summary * tl.load(mix + columns), 0)  # Σ_i α_ti [h_i; c_i]·grad_summary
    for start in range(0, t + 1, TILE):
        index, mask = tile_entries(start, first, t, TILE)
        offset = index[:, None] * 2 * D + columns[None, :]
        # All loads are issued before threads first synchronize.
        entry = tl.load(values + offset, mask=mask[:, None], other=0.0)
        grad_entry = tl.load(grad_values + offset, mask=mask[:, None], other=0.0)
        grad_key = _tile_keys(grad_keys, index, mask, WIDTH, WIDE)
        hidden = tanh(_tile_keys(keys, index, mask, WIDTH, WIDE) + q[None, :])
        weight = tl.exp(tl.where(mask, tl.sum(hidden * v[None, :], 1) - lse, -3e38))
        tl.store(grad_values + offset, grad_entry + weight[:, None] * grad_summary[None, :], mask=mask[:, None])
        grad_scored = weight * (tl.sum(entry * grad_summary[None, :], 1) - mean)
        grad_v += grad_scored[:, None] * hidden
        grad_hidden = grad_scored[:, None] * v[None, :] * (1.0 - hidden * hidden)
        grad_q += grad_hidden
        key_offset, key_mask = index[:, None] * WIDTH + lane, mask[:, None] & (lane < WIDTH)
        tl.store(grad_keys + key_offset, grad_key + grad_hidden, mask=key_mask)
    return tl.sum(grad_q, 0), grad_v
