"""An LSTM layer in half precision on a GPU: each step is a matmul and one Triton kernel, and each weight's gradient one
matmul over all steps. In a CUDA graph, as training runs it, this takes a fraction of the time of torch's kernel, which
has no bf16 (`benchmarks/gpu/kernel_speed.py`). Gates and c are float32. The reference is the loop of `LstmCell`.

A single step has one kernel for all that is pointwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.fast.triton_common import runtime
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.cells import LstmCell
from seqloom.parts.recurrent.layers import run_cell
from seqloom.parts.visibility import Visibility, last

Report = Callable[[Tensor], None] | None
ALIGNMENT = 8  # 16 bytes of half precision: matmuls of other widths are slower than torch's kernel


def supported(cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None) -> bool:
    """For T > 1, in training under autocast."""
    if type(cell) is not LstmCell or cell.norms is not None or any(cell.zoneout) or report is not None:
        return False
    training = runtime.usable(x) and torch.is_grad_enabled() and torch.is_autocast_enabled(x.device.type)
    aligned = cell.dim % ALIGNMENT == 0 and x.size(2) % ALIGNMENT == 0
    return training and aligned and x.size(1) > 1 and x.numel() > 0


@twin_of(run_cell, supported)
def half_lstm(
    cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None
) -> tuple[Tensor, CellState]:
    h, c = cell.start(x.size(0), x) if state is None else state
    states = lstm(x, (h, c), (cell.weight, cell.recurrent, cell.bias))
    return states[0], tuple(last(part, visible.lengths) for part in states)


def _half(self: LstmCell, gates: Tensor, state: CellState) -> bool:
    return self.norms is None and gates.is_cuda and gates.dtype.itemsize < 4


@twin_of(LstmCell.step, _half, compiles=True)
def half_lstm_step(self: LstmCell, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
    inner = F.linear(state[0], self.recurrent).float()
    h, c, activations = torch.ops.aten._thnn_fused_lstm_cell(gates.float(), inner, state[1].float())
    return (h, c), (*activations.chunk(4, -1), c, h)


def lstm(x: Tensor, state: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """x [R, T, input], h and c before the first step [R, dim], and W, U and b -> h in half precision and c in
    float32 after every step, [R, T, dim]."""
    dtype = torch.get_autocast_dtype(x.device.type)
    h, c = _Steps.apply(x.transpose(0, 1), *state, *weights, dtype)  # pyright: ignore
    return h.transpose(0, 1), c.transpose(0, 1)


class _Steps(torch.autograd.Function):
    """Time first, so that the tensors of one step are contiguous."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        from seqloom.fast.recurrent import lstm_triton

        h, c, weight, recurrent, bias, dtype = rest
        (steps, rows, _), dim = x.shape, h.size(1)
        inputs, weight, recurrent = x.to(dtype).contiguous().flatten(0, 1), weight.to(dtype), recurrent.to(dtype)
        gates = torch.addmm(bias.to(dtype), inputs, weight.mT).view(steps, rows, 4 * dim)
        states = gates.new_empty(steps + 1, rows, dim)
        cells = gates.new_empty(steps + 1, rows, dim, dtype=torch.float32)
        states[0], cells[0] = h, c
        for t in range(steps):
            gates[t].addmm_(states[t], recurrent.mT)
            lstm_triton.forward(gates[t], cells[t], states[t + 1], cells[t + 1])
        ctx.dtypes = [part.dtype for part in (x, *rest[:5])]
        ctx.save_for_backward(inputs, weight, recurrent, gates, states, cells)
        ctx.set_materialize_grads(False)
        return states[1:], cells[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor | None, grad_cells: Tensor | None) -> Any:  # pyright: ignore
        from seqloom.fast.recurrent import lstm_triton

        inputs, weight, recurrent, gates, states, cells = ctx.saved_tensors
        steps, rows, _ = gates.shape
        grad_states = torch.zeros_like(states[1:]) if grad_states is None else grad_states
        if grad_states.stride(2) != 1:
            grad_states = grad_states.contiguous()
        grad_gates, grad_c = torch.empty_like(gates), torch.zeros_like(cells[0])
        grad_next: Any = None
        for t in reversed(range(steps)):
            if grad_cells is not None:
                grad_c += grad_cells[t]
            lstm_triton.backward(grad_states[t], grad_next, (gates[t], cells[t], cells[t + 1]), (grad_gates[t], grad_c))
            grad_next = grad_gates[t] @ recurrent
        flat = grad_gates.flatten(0, 1)
        grad_x = (flat @ weight).view(steps, rows, -1)
        grad_weights = flat.mT @ inputs, flat.mT @ states[:-1].flatten(0, 1), flat.sum(0, dtype=torch.float32)
        grads = zip((grad_x, grad_next, grad_c, *grad_weights), ctx.dtypes, strict=True)
        return *(grad.to(dtype) for grad, dtype in grads), None
