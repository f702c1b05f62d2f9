"""Recurrent cells with attention over their own history, all steps in one kernel on a GPU. Step by step they are many
small kernels, bound by launches. The references are the cells' own steps, in `parts/recurrent/self_attention_cells.py`.

Arithmetic is in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.fast.recurrent.one_kernel import without_autocast
from seqloom.fast.triton_common import runtime
from seqloom.parts.attention.scores import Additive, Dot, Scaled
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.layers import run_cell
from seqloom.parts.recurrent.self_attention_cells import AttentiveCell, LstmnCell
from seqloom.parts.visibility import Visibility, last

Report = Callable[[Tensor], None] | None
DIMS = (16, 32, 64, 128, 256)
MAX_SCORE_WIDTH = 1024  # of the scoring network: a tile of 4,096 numbers holds four of its hidden vectors
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class AllSteps(NamedTuple):
    scores: tuple[type, ...]
    width: Callable[[Any], int]  # of the scoring network
    fixed: int  # parts of the state before the history
    run: Callable[[Any, Tensor, Visibility, CellState], tuple[Tensor, CellState]]


def supported(cell: Any, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None) -> bool:
    """For T > 1, from an empty history."""
    kernel = KERNELS.get(type(cell))
    if kernel is None or report is not None or any(cell.zoneout) or not runtime.usable(x):
        return False
    look, history = cell.look, () if state is None else state[kernel.fixed :]
    if look.window is not None or type(look.score) not in kernel.scores or any(history):
        return False
    width = kernel.width(look.score)
    return x.size(1) > 1 and cell.dim in DIMS and width <= MAX_SCORE_WIDTH and x.dtype in FLOATS


@twin_of(run_cell, supported)
def all_steps(
    cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None
) -> tuple[Tensor, CellState]:
    now = cell.start(x.size(0), x) if state is None else state
    y, end = KERNELS[type(cell)].run(cell, x, visible, now)
    return y, end if visible.causal and visible.lengths is None else end[: cell.parts]


@without_autocast
def _attentive_steps(cell: AttentiveCell, x: Tensor, visible: Visibility, state: CellState) -> tuple[Tensor, CellState]:
    score = cell.look.score
    scale = score.scale if isinstance(score, Scaled) else 1.0
    y, h = attentive(cell.input(x), cell.recurrent, state[0], scale)
    return y, (last(y, visible.lengths), ((h, h, h.new_ones(h.shape[:2])),))


@without_autocast
def _lstmn_steps(cell: LstmnCell, x: Tensor, visible: Visibility, state: CellState) -> tuple[Tensor, CellState]:
    h, c, score = *state[:2], cell.look.score
    assert isinstance(score, Additive)
    h_tilde, real = state[2:4] or (torch.zeros_like(h), h.new_ones(h.size(0), 1))
    of_x, of_h_tilde = score.query.weight.split([cell.input_dim, cell.dim], 1)
    gates, queries = Cell.input(cell, x), F.linear(x, of_x, score.query.bias)
    weights = (score.key.weight, of_h_tilde, score.weight)
    values, keys, h_tilde = lstmn(gates, queries, (h, c, h_tilde, real), cell.recurrent, weights)
    one = torch.ones_like(real)
    history = ((keys, values[:, :-1], torch.cat([real, one.expand(-1, x.size(1) - 1)], 1)),)
    y = values[:, 1:, : cell.dim].contiguous()
    if visible.lengths is not None:
        return y, (last(y, visible.lengths), last(values[:, 1:, cell.dim :], visible.lengths))
    return y, (*values[:, -1].chunk(2, -1), h_tilde, one, history)


KERNELS = {
    AttentiveCell: AllSteps((Scaled, Dot), lambda score: 1, 1, _attentive_steps),
    LstmnCell: AllSteps((Additive,), lambda score: score.weight.size(0), 4, _lstmn_steps),
}


def attentive(gates: Tensor, recurrent: Tensor, initial: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """h_t = tanh(g_t + U c_{t−1}), c_t = Σ_s softmax(scale · h_t·h_s)_s h_s over s ≤ t: gates [R, T, dim], U [dim, dim]
    and c_0 [R, dim] -> c and h, each [R, T, dim]."""
    contexts, history = _Attentive.apply(*_float32(gates, recurrent, initial), scale)  # pyright: ignore
    return contexts[:, 1:].contiguous().to(gates.dtype), history.to(gates.dtype)


def lstmn(
    gates: Tensor,
    query_inputs: Tensor,
    initial: tuple[Tensor, ...],
    recurrent: Tensor,
    score: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """The LSTMN (Cheng et al. 2016, equations 4 to 9) from W x + b [R, T, 4·dim] and W_x x + b [R, T, width].

    `initial`: h, c and h̃ [R, dim], and whether (h, c) is in the history [R, 1]. `score`: W_h and W_h̃ [width, dim],
    and v [width]. Returns the entries [h; c] before every step and after the last, [R, T + 1, 2·dim], the keys of all
    but the last, [R, T, width], and the last h̃ [R, dim].
    """
    values, keys, summary = _Lstmn.apply(*_float32(gates, query_inputs, *initial, recurrent, *score))  # pyright: ignore
    return values.to(gates.dtype), keys.to(gates.dtype), summary.to(gates.dtype)


def _float32(*tensors: Tensor) -> list[Tensor]:
    return [tensor.float().contiguous() for tensor in tensors]


class _Attentive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, initial: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        from seqloom.fast.recurrent import attentive_triton

        contexts, history, log_sums = attentive_triton.forward(gates, recurrent, initial, scale)
        ctx.save_for_backward(recurrent, contexts, history, log_sums)
        ctx.scale = scale
        return contexts, history

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_contexts: Tensor, grad_history: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.recurrent import attentive_triton

        recurrent, *saved = ctx.saved_tensors
        grad_entries = grad_history.clone(memory_format=torch.contiguous_format)
        grad_gates = attentive_triton.backward(
            grad_contexts.contiguous(), grad_entries, recurrent, tuple(saved), ctx.scale
        )
        grad_initial = grad_contexts[:, 0] + grad_gates[:, 0] @ recurrent
        return grad_gates, _grad_weight(grad_gates, saved[0][:, :-1]), grad_initial, None


class _Lstmn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, query_inputs: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore
        from seqloom.fast.recurrent import lstmn_triton

        initial, weights = rest[:4], rest[4:]
        saved = lstmn_triton.forward(gates, query_inputs, initial, lstmn_triton.Weights(*weights))
        ctx.save_for_backward(initial[3], *weights, *saved)
        return saved.values, saved.keys, saved.mix[:, -1, : initial[2].size(1)].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        from seqloom.fast.recurrent import lstmn_triton

        has_first, weights = ctx.saved_tensors[0], lstmn_triton.Weights(*ctx.saved_tensors[1:5])
        saved = lstmn_triton.Saved(*ctx.saved_tensors[5:])
        grads = lstmn_triton.Grads(
            *(grad_output.clone(memory_format=torch.contiguous_format) for grad_output in grad_outputs)
        )
        grad_gates, grad_queries, grad_score = lstmn_triton.backward(grads, has_first, weights, saved)
        grad_h, grad_c = grads.values[:, 0].chunk(2, 1)
        grad_initial = (grad_h + grads.keys[:, 0] @ weights.key, grad_c, grad_queries[:, 0] @ weights.query, None)
        h, summary = saved.values.chunk(2, 2)[0], saved.mix.chunk(2, 2)[0]
        grad_recurrent, grad_query = (
            _grad_weight(grad_gates, summary[:, 1:]),
            _grad_weight(grad_queries, summary[:, :-1]),
        )
        return (
            grad_gates,
            grad_queries,
            *grad_initial,
            grad_recurrent,
            _grad_weight(grads.keys, h[:, :-1]),
            grad_query,
            grad_score.sum(0),
        )


def _grad_weight(grad_output: Tensor, x: Tensor) -> Tensor:
    """Gradient of W of W x, x [R, T, in], `grad_output` [R, T, out]: one matmul over all steps."""
    return grad_output.flatten(0, 1).mT @ x.flatten(0, 1)
