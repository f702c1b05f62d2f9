"""Recurrent layers of any cell, stacked, in one or two directions: fused where a kernel exists, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.hardware import bf16_supported
from seqloom.parts.layers.dropout import dropout, locked_dropout
from seqloom.parts.probe import Probed
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.cells import CELLS, as_dims, name_of
from seqloom.parts.visibility import Visibility, flip, keep, last

StackState = tuple[CellState, ...]  # a state per layer; of two directions concatenated


class Recurrent(nn.Module):
    """A stack of recurrent layers, [R, T, input_dim] -> [R, T, out_dim].

    `dim` is the width of a direction, one for all layers or a list with one each; `directions=2` reads in both
    directions and concatenates them (Schuster & Paliwal 1997). Dropout is applied between layers (Zaremba et al. 2014),
    with `locked_dropout` one mask for all steps. `weight_drop`: DropConnect on the recurrent matrices U, drawn once a
    batch (Wan et al. 2013; Merity et al. 2018, section 2).
    """

    def __init__(
        self,
        input_dim: int,
        dim: int | list[int],
        cell: Annotated[Choice, CELLS] = "lstm",
        layers: int = 1,
        directions: int = 1,
        dropout: float = 0.0,
        weight_drop: float = 0.0,
        locked_dropout: bool = False,
    ) -> None:
        super().__init__()
        if directions not in (1, 2):
            raise SeqloomError(f"directions is 1 or 2, here {directions}")
        dims = as_dims(dim, layers)
        inputs = [input_dim, *(directions * d for d in dims[:-1])]
        self.layers = nn.ModuleList(Layer(i, d, cell, directions) for i, d in zip(inputs, dims, strict=True))
        self.dropout, self.weight_drop, self.locked_dropout = dropout, weight_drop, locked_dropout
        self.out_dim = directions * dims[-1]
        _check_weight_drop(weight_drop, self.layers[0].cells[0])  # pyright: ignore

    @property
    def state_dims(self) -> tuple[tuple[int, ...], ...]:
        """Widths of the fixed-size tensors in the state of every layer."""
        return tuple(layer.state_dims for layer in self.layers)  # pyright: ignore[reportReturnType]

    @property
    def carries(self) -> bool:
        """Whether the state has a fixed size, so that it may be carried from batch to batch."""
        return all(layer.cells[0].carries for layer in self.layers)  # pyright: ignore

    def start(self, rows: int, like: Tensor) -> StackState:
        return tuple(layer.start(rows, like) for layer in self.layers)  # pyright: ignore

    def run(self, x: Tensor, visible: Visibility, state: StackState | None = None) -> tuple[list[Tensor], StackState]:
        """The outputs of every layer, and the state of each after its last real step."""
        drop, outputs, states = locked_dropout if self.locked_dropout else dropout, [], []
        for depth, layer in enumerate(self.layers):
            if depth:
                x = drop(x, self.dropout, self.training)
            begun = None if state is None else state[depth]
            if self.training and self.weight_drop:
                cells = enumerate(layer.cells)  # pyright: ignore
                dropped = {f"cells.{n}.recurrent": dropout(cell.recurrent, self.weight_drop, True) for n, cell in cells}
                x, end = functional_call(layer, dropped, (x, visible, begun))
            else:
                x, end = layer(x, visible, begun)
            outputs.append(x)
            states.append(end)
        return outputs, tuple(states)

    def forward(self, x: Tensor, visible: Visibility, state: StackState | None = None) -> tuple[Tensor, StackState]:
        outputs, state = self.run(x, visible, state)
        return outputs[-1], state


class Layer(Probed):
    """One layer, in one or two directions. Reports the cell's activations, [R, T, names, dim], each direction."""

    def __init__(self, input_dim: int, dim: int, cell: Choice, directions: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(build(CELLS, cell, input_dim=input_dim, dim=dim) for _ in range(directions))
        first: Cell = self.cells[0]  # pyright: ignore[reportAssignmentType]
        self.state_dims = (directions * dim,) * first.parts

    def start(self, rows: int, like: Tensor) -> CellState:
        first: Cell = self.cells[0]  # pyright: ignore[reportAssignmentType]
        if len(self.cells) == 1:
            return first.start(rows, like)
        return tuple(like.new_zeros(rows, dim) for dim in self.state_dims)

    def forward(self, x: Tensor, visible: Visibility, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """[R, T, input] -> [R, T, directions·dim] and the state after each row's last real step."""
        cells: list[Cell] = list(self.cells)  # pyright: ignore[reportAssignmentType]
        if len(cells) == 1:
            return run_cell(cells[0], x, visible, state, self.probe)
        states = (None, None) if state is None else zip(*(part.chunk(2, -1) for part in state), strict=True)
        first, second = states
        forward, end = run_cell(cells[0], x, visible, first, self.probe)
        backward, other_end = run_cell(cells[1], flip(x, visible.lengths), visible, second, self.probe)
        both = tuple(torch.cat(pair, -1) for pair in zip(end, other_end, strict=True))
        return torch.cat([forward, flip(backward, visible.lengths)], -1), both


def run_cell(
    cell: Cell,
    x: Tensor,
    visible: Visibility,
    state: CellState | None,
    report: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, CellState]:
    """[R, T, input] -> [R, T, dim]. Rows are padded after, so real steps never see a padded one."""
    now: CellState = cell.start(x.size(0), x) if state is None else state
    lengths = visible.lengths
    # A growing history is returned only for stepping, where no row is padded.
    parts = None if visible.causal and lengths is None else cell.parts
    if report is None and not cell.stepwise and _fused_is_faster(x):
        if states := cell.fused_bf16(x, now):
            return states[0], tuple(last(part, lengths) for part in states)[:parts]
        if result := _fused(cell, x, lengths, now):
            return result[0], result[1][:parts]
    if report is None and x.size(1) == 1:
        now, _ = cell(cell.input(x[:, 0]), now)
        return now[0][:, None], now[:parts]
    gates, states, activations = cell.input(x), [], []
    for gate in gates.unbind(1):  # unbind: the backward pass of indexing would allocate zeros for every step
        now, active = cell(gate, now)
        states.append(now[: cell.parts])
        activations.append(active)
    if report:
        report(torch.stack([torch.stack(active, 1) for active in activations], 1).detach())
    over_time = [torch.stack(part, 1) for part in zip(*states, strict=True)]
    return over_time[0], tuple(last(part, lengths) for part in over_time) if lengths is not None else now[:parts]


def _fused_is_faster(x: Tensor) -> bool:
    """For a single step of few rows, setting up the kernel costs more than it saves: at width 512 on one core 1.9
    against 0.2 ms for one row, 4.1 against 3.1 for 64, and about the same from 320 on."""
    return x.size(1) > 1 or (x.size(0) > 256 and x.device.type == "cpu")


def _fused(cell: Cell, x: Tensor, lengths: Tensor | None, state: CellState) -> tuple[Tensor, CellState] | None:
    device_type = x.device.type
    if torch.is_autocast_enabled(device_type) and (x.is_cuda or not bf16_supported(x.device)):
        # On a GPU autocast runs fused RNNs in float16 even if bfloat16 was requested: TF32 is as fast and safer.
        with torch.autocast(device_type, enabled=False):
            full = (part.float() if isinstance(part, Tensor) else part for part in state)  # a history stays as it is
            return _fused(cell, x.float(), lengths, tuple(full))
    if lengths is None:
        return cell.fused(x, state)
    if held := cell.hold_padding(x, keep(lengths, x.size(1))):
        y, end = cell.fused(held[0], state, held[1])  # pyright: ignore
        return y, (last(y, lengths), *end[1:])
    if result := cell.fused(x, state):
        return result[0], cell.final_state(*result, lengths)
    return None


def _check_weight_drop(share: float, cell: Cell) -> None:
    if not 0 <= share < 1:
        raise SeqloomError(f"weight_drop is at least 0 and below 1, here {share}")
    if share and not cell.has_recurrent:
        raise SeqloomError(
            f"weight_drop takes from the matrix between states, and {name_of(cell)} has none; "
            "choose dropout or cell.zoneout, or the cell rnn, gru or lstm"
        )
