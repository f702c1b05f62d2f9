"""Any cell over a whole sequence: fused where torch has a kernel, else step by step; deep, in one direction or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.cell import CELLS, Cell, CellState, as_dims
from seqloom.parts.choose import Choice, build
from seqloom.parts.dropout import dropout
from seqloom.parts.probe import Probed
from seqloom.parts.see import See, keep, last

StackState = tuple[CellState, ...]  # a state per layer; two directions stand side by side in it


class Recurrent(nn.Module):
    """A stack of recurrent layers, [R, T, input_dim] -> [R, T, out_dim].

    `dim` is the width of a direction, one for all layers or a list with one each; `directions=2` reads both ways and
    puts the two side by side (Schuster & Paliwal 1997). Dropout stands between layers (Zaremba et al. 2014).
    """

    def __init__(
        self,
        input_dim: int,
        dim: int | list[int],
        cell: Annotated[Choice, CELLS] = "lstm",
        layers: int = 1,
        directions: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if directions not in (1, 2):
            raise SeqloomError(f"directions is 1 or 2, here {directions}")
        dims = as_dims(dim, layers)
        inputs = [input_dim, *(directions * d for d in dims[:-1])]
        self.layers = nn.ModuleList(Layer(i, d, cell, directions) for i, d in zip(inputs, dims, strict=True))
        self.dropout = dropout
        self.out_dim = directions * dims[-1]

    @property
    def state_dims(self) -> tuple[tuple[int, ...], ...]:
        """Widths of the tensors in the state of every layer."""
        return tuple(layer.state_dims for layer in self.layers)  # pyright: ignore[reportReturnType]

    def start(self, rows: int, like: Tensor) -> StackState:
        return tuple(tuple(like.new_zeros(rows, d) for d in dims) for dims in self.state_dims)

    def run(self, x: Tensor, see: See, state: StackState | None = None) -> tuple[list[Tensor], StackState]:
        """The outputs of every layer, and the state of each after its last real step."""
        outputs, states = [], []
        for depth, layer in enumerate(self.layers):
            if depth:
                x = dropout(x, self.dropout, self.training)
            x, end = layer(x, see, None if state is None else state[depth])
            outputs.append(x)
            states.append(end)
        return outputs, tuple(states)

    def forward(self, x: Tensor, see: See, state: StackState | None = None) -> tuple[Tensor, StackState]:
        outputs, state = self.run(x, see, state)
        return outputs[-1], state


class Layer(Probed):
    """One layer, in one or two directions. Reports what its cell's `names` say, [R, T, names, dim], each direction."""

    def __init__(self, input_dim: int, dim: int, cell: Choice, directions: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(build(CELLS, cell, input_dim=input_dim, dim=dim) for _ in range(directions))
        first: Cell = self.cells[0]  # pyright: ignore[reportAssignmentType]
        self.state_dims = (directions * dim,) * first.parts

    def forward(self, x: Tensor, see: See, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """[R, T, input] -> [R, T, directions·dim] and the state after each row's last real step."""
        cells: list[Cell] = list(self.cells)  # pyright: ignore[reportAssignmentType]
        ways = len(cells)
        states = [None] * ways if state is None else list(zip(*(part.chunk(ways, -1) for part in state), strict=True))
        forward, end = run_cell(cells[0], x, see.lengths, states[0], self.probe)
        if ways == 1:
            return forward, end
        backward, other = run_cell(cells[1], flip(x, see.lengths), see.lengths, states[1], self.probe)
        both = tuple(torch.cat(pair, -1) for pair in zip(end, other, strict=True))
        return torch.cat([forward, flip(backward, see.lengths)], -1), both


def run_cell(
    cell: Cell,
    x: Tensor,
    lengths: Tensor | None,
    state: CellState | None,
    report: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, CellState]:
    """[R, T, input] -> [R, T, dim]. Rows are padded after, so real steps never see a padded one."""
    state = cell.start(x.size(0), x) if state is None else state
    if report is None and _worth_fusing(x) and (result := _fused(cell, x, lengths, state)):
        return result
    if report is None and x.size(1) == 1:
        state, _ = cell.step(cell.input(x[:, 0]), state)
        return state[0][:, None], state
    gates, states, activations = cell.input(x), [], []
    for gate in gates.unbind(1):  # a place taken out by its number would cost a matrix of zeros on the way back
        state, active = cell.step(gate, state)
        states.append(state)
        activations.append(active)
    if report:
        report(torch.stack([torch.stack(active, 1) for active in activations], 1).detach())
    over_time = [torch.stack(part, 1) for part in zip(*states, strict=True)]
    return over_time[0], tuple(last(part, lengths) for part in over_time) if lengths is not None else state


def _worth_fusing(x: Tensor) -> bool:
    """Setting up a kernel costs more than it saves in a single step, if rows are not many: at width 512 on one core 1.9
    against 0.2 ms for one row, 4.1 against 3.1 for 64, and about the same from 320 on."""
    return x.size(1) > 1 or (x.size(0) > 256 and x.device.type == "cpu")


def _fused(cell: Cell, x: Tensor, lengths: Tensor | None, state: CellState) -> tuple[Tensor, CellState] | None:
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        # There torch runs fused RNNs in half precision, also where bfloat16 was asked for: TF32 is as fast and safer.
        with torch.autocast("cuda", enabled=False):
            return _fused(cell, x.float(), lengths, tuple(part.float() for part in state))
    if lengths is None:
        return cell.fused(x, state)
    if held := cell.hold(x, keep(lengths, x.size(1))):
        y, end = cell.fused(held[0], state, held[1])  # pyright: ignore
        return y, (last(y, lengths), *end[1:])
    if result := cell.fused(x, state):
        return result[0], (last(result[0], lengths),)
    return None


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn each row's real steps round, [R, T, D]; padded ones stay behind them."""
    if lengths is None:
        return x.flip(1)
    at = torch.arange(x.size(1), device=x.device)
    index = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    return x.gather(1, index[:, :, None].expand_as(x))
