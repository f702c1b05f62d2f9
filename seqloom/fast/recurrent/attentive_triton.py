"""The attentive RNN over all its steps, one program for each row: the loop over time is inside the kernel, so a step
costs no launch. Backward recomputes the attention weights from their log-sum-exp. The reference is
`AttentiveCell.step`.

Threads read what other threads wrote earlier in the same step, so barriers stand in between.
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
TILE_ELEMENTS = 8192  # in a tile of history entries: 32 registers of a thread; a pass holds a few tiles at once


def forward(gates: Tensor, inner: Tensor, initial: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gates W x + b [R, T, dim], U [dim, dim] and c_0 [R, dim], in float32 -> c_0 … c_T [R, T + 1, dim], h [R, T, dim]
    and the log-sum-exp of each step's scores [R, T]."""
    rows, steps, dim = gates.shape
    contexts, history, log_sums = (
        gates.new_empty(rows, steps + 1, dim),
        torch.empty_like(gates),
        gates.new_empty(rows, steps),
    )
    contexts[:, 0] = initial
    if rows:
        _forward[(rows,)](
            gates, inner.mT.contiguous(), contexts, history, log_sums, scale, steps, **_tiles(dim, TILE_ELEMENTS)
        )
    return contexts, history, log_sums


def backward(
    grad_contexts: Tensor, grad_history: Tensor, inner: Tensor, saved: tuple[Tensor, Tensor, Tensor], scale: float
) -> Tensor:
    """Gradients of c_0 … c_T and of h -> the gradient of the gates, [R, T, dim]. `grad_history` is overwritten."""
    rows, steps, dim = grad_history.shape
    grad_gates = torch.empty_like(grad_history)
    if rows:
        _backward[(rows,)](
            grad_contexts, grad_history, grad_gates, inner, *saved, scale, steps, **_tiles(dim, _backward_elements(dim))
        )
    return grad_gates


def _tiles(dim: int, elements: int) -> dict[str, int]:
    """One stage: no entry may be prefetched before the barrier after its store."""
    return {"D": dim, "TILE": min(64, elements // dim), "num_warps": WARPS, "num_stages": 1}


def _backward_elements(dim: int) -> int:
    """Of a tile in backward: the widest state leaves fewer registers."""
    return TILE_ELEMENTS if dim < 256 else TILE_ELEMENTS // 2


@jit(varying=("steps",))
def _forward(gates, inner, contexts, history, log_sums, scale, steps, D: tl.constexpr, TILE: tl.constexpr):
    """h_t = tanh(g_t + U c_{t−1}); c_t = Σ_s α_ts h_s over s ≤ t. `inner` is Uᵀ."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    history += row * steps * D
    gates += row * steps * D
    contexts += row * (steps + 1) * D
    for t in range(steps):
        h = tanh(tl.load(gates + t * D + column) + vector_matmul(inner, contexts + t * D, D, D, D))
        tl.store(history + t * D + column, h)
        tl.debug_barrier()  # h_t is in the history
        maximum, exp_sum, context = (
            tl.full([TILE], -3e38, tl.float32),
            tl.zeros([TILE], tl.float32),
            tl.zeros([TILE, D], tl.float32),
        )
        for start in range(0, t + 1, TILE):
            index, mask = tile_entries(start, 0, t, TILE)
            entry = tl.load(history + index[:, None] * D + column[None, :], mask=mask[:, None], other=0.0)
            maximum, exp_sum, rescale, weight = softmax_update(
                tl.sum(entry * h[None, :], 1) * scale, mask, maximum, exp_sum
            )
            context = context * rescale[:, None] + entry * weight[:, None]
        factor, log_sum_exp = softmax_finish(maximum, exp_sum)
        tl.store(contexts + (t + 1) * D + column, tl.sum(context * factor[:, None], 0))
        tl.store(log_sums + row * steps + t, log_sum_exp)
        tl.debug_barrier()  # c_t is stored for the next step


@jit(varying=("steps",))
def _backward(
    grad_contexts,
    grad_history,
    grad_gates,
    inner,
    contexts,
    history,
    log_sums,
    scale,
    steps,
    D: tl.constexpr,
    TILE: tl.constexpr,
):
    """From the last step to the first. `grad_history` accumulates the gradients of the entries."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    history += row * steps * D
    grad_history += row * steps * D
    grad_gates += row * steps * D
    contexts += row * (steps + 1) * D
    grad_contexts += row * (steps + 1) * D
    for back in range(steps):
        t = steps - 1 - back
        grad_c = tl.load(grad_contexts + (t + 1) * D + column)
        if back > 0:
            grad_c += vector_matmul(inner, grad_gates + (t + 1) * D, D, D, D)
        h, log_sum_exp = tl.load(history + t * D + column), tl.load(log_sums + row * steps + t)
        mean = tl.sum(grad_c * tl.load(contexts + (t + 1) * D + column), 0)  # Σ_s α_ts h_s·grad_c
        grad_query = tl.zeros([TILE, D], tl.float32)
        for start in range(0, t + 1, TILE):
            index, mask = tile_entries(start, 0, t, TILE)
            offset = index[:, None] * D + column[None, :]
            # Both loads are issued before either is used.
            entry = tl.load(history + offset, mask=mask[:, None], other=0.0)
            grad_entry = tl.load(grad_history + offset, mask=mask[:, None], other=0.0)
            weight = tl.exp(tl.where(mask, tl.sum(entry * h[None, :], 1) * scale - log_sum_exp, -3e38))
            grad_score = weight * (tl.sum(entry * grad_c[None, :], 1) - mean) * scale
            grad_query += grad_score[:, None] * entry
            grad_entry += weight[:, None] * grad_c[None, :] + grad_score[:, None] * h[None, :]
            tl.store(grad_history + offset, grad_entry, mask=mask[:, None])
        tl.debug_barrier()  # the gradient of h_t as an entry is complete
        grad_h = tl.load(grad_history + t * D + column) + tl.sum(grad_query, 0)
        tl.store(grad_gates + t * D + column, grad_h * (1.0 - h * h))
        tl.debug_barrier()  # the gradient of the gates is stored for the previous step


@jit()
def tanh(x):
    """Exact to 1e-7."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@jit()
def vector_matmul(matrix, vector, COUNT: tl.constexpr, OUT: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr = 0):
    """A vector [COUNT] times a matrix [COUNT, OUT] with row stride STEP (0: OUT), both in memory -> [WIDE], zeros
    beyond OUT. Threads synchronize once, at the end."""
    ROWS: tl.constexpr = min(64, 8192 // WIDE)
    STRIDE: tl.constexpr = STEP if STEP else OUT
    column, total = tl.arange(0, WIDE), tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, COUNT, ROWS):
        index = start + tl.arange(0, ROWS)
        block_mask = (index < COUNT)[:, None] & (column < OUT)[None, :]
        block = tl.load(matrix + index[:, None] * STRIDE + column[None, :], mask=block_mask, other=0.0)
        total += block * tl.load(vector + index, mask=index < COUNT, other=0.0)[:, None]
    return tl.sum(total, 0)


@jit()
def tile_entries(start, first_entry, t, TILE: tl.constexpr):
    """Indices of a tile of entries, and which of them are within `first_entry` … t."""
    index = start + tl.arange(0, TILE)
    return index, (index >= first_entry) & (index <= t)


@jit()
def softmax_update(score, mask, maximum, exp_sum):
    """Online softmax over one more tile. Each lane has its own maximum and sum, [TILE], so that threads synchronize
    only after the last tile. Returns both, the factor that rescales the context so far, and the tile's weights."""
    score = tl.where(mask, score, -3e38)
    new_maximum = tl.maximum(maximum, score)
    rescale, weight = tl.exp(maximum - new_maximum), tl.where(mask, tl.exp(score - new_maximum), 0.0)
    return new_maximum, exp_sum * rescale + weight, rescale, weight


@jit()
def softmax_finish(maximum, exp_sum):
    """The factor of each lane's context, [TILE], and the log-sum-exp over all lanes. Without visible entries the
    context is zero."""
    overall = tl.max(maximum, 0)
    factor = tl.exp(maximum - overall)
    total = tl.sum(exp_sum * factor, 0)
    total = tl.where(total > 0.0, total, 1.0)
    return factor / total, overall + tl.log(total)
