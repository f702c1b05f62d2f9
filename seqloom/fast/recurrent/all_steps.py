"""All steps of a recurrent layer at once: by torch's RNN kernels, or by what a cell has itself. A single step by the
cell alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.recurrent.one_kernel import one_kernel_pays, without_autocast
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.cells import GruCell, LstmCell, RnnCell
from seqloom.parts.recurrent.layers import run_cell
from seqloom.parts.visibility import Visibility, keep, last

Report = Callable[[Tensor], None] | None


# ---------------------------------------------------------------- torch's kernels


class Kernel(NamedTuple):
    supported: Callable[[Any], bool]  # with the settings of this cell
    of: Callable[[Any], Callable[..., tuple[Tensor, ...]]]


KERNELS = {
    RnnCell: Kernel(
        lambda cell: cell.norm is None and cell.activation != "none",
        lambda cell: torch.rnn_tanh if cell.activation == "tanh" else torch.rnn_relu,
    ),
    GruCell: Kernel(lambda cell: cell.norms is None and cell.reset_gate == "after", lambda cell: torch.gru),
    LstmCell: Kernel(lambda cell: cell.norms is None, lambda cell: torch.lstm),
}


def _has_kernel(cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None) -> bool:
    if report is not None or not one_kernel_pays(cell, x):
        return False
    kernel = KERNELS.get(type(cell))
    return kernel is not None and kernel.supported(cell)


@twin_of(run_cell, _has_kernel, compiles=True)
def torch_steps(
    cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None
) -> tuple[Tensor, CellState]:
    return _torch_steps(cell, x, visible, cell.start(x.size(0), x) if state is None else state)


@without_autocast
def _torch_steps(cell: Cell, x: Tensor, visible: Visibility, state: CellState) -> tuple[Tensor, CellState]:
    lengths, weight = visible.lengths, cell.weight
    if lengths is not None and type(cell) is LstmCell:
        x, weight = _hold_padding(cell, x, keep(lengths, x.size(1)))
    y, *end = _torch_kernel(cell, x, state, weight)
    return y, tuple(end) if lengths is None else (last(y, lengths), *end[1:])


def _torch_kernel(cell: Cell, x: Tensor, state: CellState, weight: Tensor) -> tuple[Tensor, ...]:
    """The output [R, T, dim] and the last state. With train=True whenever gradients are on: else cuDNN does not keep
    what the backward pass needs."""
    first = tuple(part[None].contiguous() for part in state)
    weights = [weight, cell.recurrent, cell.bias, torch.zeros_like(cell.bias)]  # torch has a second bias
    if cell.weight.is_cuda:  # cuDNN wants one contiguous buffer; otherwise it copies and warns
        chunk = torch.cat([w.flatten() for w in weights]).split([w.numel() for w in weights])
        weights = [part.view_as(w) for part, w in zip(chunk, weights, strict=True)]
    options = (True, 1, 0.0, torch.is_grad_enabled(), False, True)
    y, *end = KERNELS[type(cell)].of(cell)(x, first if cell.parts > 1 else first[0], weights, *options)
    return y, *(part[0] for part in end)


def _hold_padding(cell: Cell, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and a W with which c does not change where `real` [R, T] is False: the kernel returns c after the last
    step only. An extra input feature, 1 at padded positions, closes the input gate and opens the forget gate there.
    Eight columns, of which one is used, keep the matmuls aligned."""
    flag = F.pad((~real).to(x.dtype)[:, :, None], (0, 7))
    column = x.new_zeros(4 * cell.dim, 8)
    column[: cell.dim, 0], column[cell.dim : 2 * cell.dim, 0] = -1e4, 1e4
    return torch.cat([x, flag], -1), torch.cat([cell.weight, column], 1)


# ---------------------------------------------------------------- what a cell has itself


def _has_own(cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None) -> bool:
    if report is not None or not one_kernel_pays(cell, x):
        return False
    own = type(cell).all_steps is not Cell.all_steps or hasattr(type(cell), "fused")
    return own and not getattr(cell, "stepwise", False)


@twin_of(run_cell, _has_own, compiles=True)
def own_steps(
    cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None
) -> tuple[Tensor, CellState]:
    now = cell.start(x.size(0), x) if state is None else state
    found = _own_steps(cell, x, visible, now)
    return plain_of(run_cell)(cell, x, visible, now, report) if found is None else found


@without_autocast
def _own_steps(cell: Any, x: Tensor, visible: Visibility, state: CellState) -> tuple[Tensor, CellState] | None:
    if states := cell.all_steps(x, state):
        return states[0], tuple(last(part, visible.lengths) for part in states)
    # Earlier versions had `fused`, which gives the output and the last state, and `final_state` for padded rows.
    found = cell.fused(x, state) if hasattr(type(cell), "fused") else None
    if found is None or visible.lengths is None:
        return found
    if cell.parts == 1:
        return found[0], (last(found[0], visible.lengths),)
    return found[0], cell.final_state(*found, visible.lengths)


# ---------------------------------------------------------------- one step


def _single(cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None) -> bool:
    return report is None and x.size(1) == 1


@twin_of(run_cell, _single, compiles=True)
def single_step(
    cell: Cell, x: Tensor, visible: Visibility, state: CellState | None, report: Report = None
) -> tuple[Tensor, CellState]:
    now, _ = cell(cell.input(x[:, 0]), cell.start(x.size(0), x) if state is None else state)
    return now[0][:, None], now if visible.causal and visible.lengths is None else now[: cell.parts]
