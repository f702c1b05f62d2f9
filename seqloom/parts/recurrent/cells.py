"""Recurrent cells: one step of a few lines each. `layers.py` gives any of them depth, directions and masking.

A cell's state is a tuple of tensors [R, dim], the first of them h. Its parameters are W [gates·dim, input], U
[gates·dim, dim] and one trainable bias per gate.

`norm=True` adds layer normalization (Ba et al. 2016, https://arxiv.org/abs/1607.06450): W x and U h are normalized at
every step; the cell's one bias is their shift.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated
from seqloom.errors import SeqloomError, known
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.minimal_cells import MinGruCell, MinLstmCell
from seqloom.parts.recurrent.self_attention_cells import AttentiveCell, LstmnCell


class RnnCell(Cell):
    """h' = tanh(W x + U h + b) (Elman 1990).

    `activation`: tanh; relu (Le et al. 2015); or none, to see what tanh is for: without it the state is the sum of
    U^k W x_{t−k}, which vanishes or explodes.
    `norm`: h' = tanh(g⊙(a−μ)/σ + b) of a = W x + U h (Ba et al. 2016, section 3.1).
    """

    gates = 1
    names = ("state",)

    def __init__(
        self,
        input_dim: int,
        dim: int,
        activation: str = "tanh",
        norm: bool = False,
        zoneout: float | list[float] = 0.0,
    ) -> None:
        super().__init__(input_dim, dim, zoneout)
        self.activation = known(activation, ("tanh", "relu", "none"), "activation")
        self.norm = _norm(dim) if norm else None

    def input(self, x: Tensor) -> Tensor:
        return super().input(x) if self.norm is None else F.linear(x, self.weight)

    @accelerated
    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = gates + F.linear(state[0], self.recurrent)
        if self.norm is not None:
            h = self.norm(h) + self.bias
        if self.activation != "none":
            h = h.tanh() if self.activation == "tanh" else h.relu()
        return (h,), (h,)


class GruCell(Cell):
    """R = σ(W_r x + U_r h + b_r), Z = σ(W_z x + U_z h + b_z), h' = Z⊙h + (1−Z)⊙H̃ (Cho et al. 2014, section 2.3).

    `reset_gate="before"`: H̃ = tanh(W x + (R⊙h) U + b), as in the paper.
    `reset_gate="after"`: H̃ = tanh(W x + b + R⊙(h U)), the form of torch and of cuDNN.
    `norm`: LN(·) of both gates' W x and U h together, and of the candidate's (Ba et al. 2016, supplementary material).
    """

    gates = 3
    names = ("reset", "update", "candidate", "state")

    def __init__(
        self,
        input_dim: int,
        dim: int,
        reset_gate: str = "after",
        norm: bool = False,
        zoneout: float | list[float] = 0.0,
    ) -> None:
        super().__init__(input_dim, dim, zoneout)
        self.reset_gate = known(reset_gate, ("before", "after"), "reset_gate")
        # For W x, then for U h: both gates, then the candidate.
        self.norms = nn.ModuleList(_norm(size) for size in (2 * dim, dim) * 2) if norm else None

    def input(self, x: Tensor) -> Tensor:
        if self.norms is None:
            return super().input(x)
        gates, candidate = F.linear(x, self.weight).split([2 * self.dim, self.dim], -1)
        return torch.cat([self.norms[0](gates), self.norms[1](candidate)], -1) + self.bias

    @accelerated
    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, parts = state[0], [2 * self.dim, self.dim]
        (gates, candidate), (u_gates, u_candidate) = gates.split(parts, -1), self.recurrent.split(parts)
        r, z = (gates + self.normed(F.linear(h, u_gates), 2)).sigmoid().chunk(2, -1)
        if self.reset_gate == "before":
            candidate = (candidate + self.normed(F.linear(r * h, u_candidate), 3)).tanh()
        else:
            candidate = (candidate + r * self.normed(F.linear(h, u_candidate), 3)).tanh()
        h = z * h + (1 - z) * candidate
        return (h,), (r, z, candidate, h)

    def normed(self, inner: Tensor, which: int) -> Tensor:
        return inner if self.norms is None else self.norms[which](inner)


class LstmCell(Cell):
    """i, f, o = σ(…), g = tanh(W_g x + U_g h + b_g), c' = f⊙c + i⊙g, h' = o⊙tanh(c')
    (Hochreiter & Schmidhuber 1997; with the forget gate of Gers et al. 2000).

    `forget_bias`: the initial bias of the forget gate; above zero, the cell starts by remembering
    (Jozefowicz et al. 2015, section 3.1).
    `norm`: the gates are LN(W x) + LN(U h) + b, and h' = o⊙tanh(LN(c')) (Ba et al. 2016, supplement).
    """

    gates = 4
    parts = 2
    names = ("input", "forget", "candidate", "output", "cell", "state")

    def __init__(
        self,
        input_dim: int,
        dim: int,
        forget_bias: float = 1.0,
        norm: bool = False,
        zoneout: float | list[float] = 0.0,
    ) -> None:
        super().__init__(input_dim, dim, zoneout)
        with torch.no_grad():
            self.bias[dim : 2 * dim] = forget_bias
        # For W x, for U h and for c; only the last has a shift of its own.
        self.norms = nn.ModuleList([_norm(4 * dim), _norm(4 * dim), nn.LayerNorm(dim)]) if norm else None

    def input(self, x: Tensor) -> Tensor:
        if self.norms is None:
            return super().input(x)
        return self.norms[0](F.linear(x, self.weight)) + self.bias

    @accelerated
    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state
        i, f, g, o = (gates + self.normed(F.linear(h, self.recurrent), 1)).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * self.normed(c, 2).tanh()
        return (h, c), (i, f, g, o, c, h)

    def normed(self, x: Tensor, which: int) -> Tensor:
        return x if self.norms is None else self.norms[which](x)


CELLS = {
    "rnn": RnnCell,
    "gru": GruCell,
    "lstm": LstmCell,
    "mingru": MinGruCell,
    "minlstm": MinLstmCell,
    "attentive-rnn": AttentiveCell,
    "lstmn": LstmnCell,
}


def name_of(cell: Cell) -> str:
    """The cell's name in the table; for a user's own cell, its class."""
    return next((name for name, make in CELLS.items() if type(cell) is make), type(cell).__name__)


def as_dims(dim: int | list[int], layers: int) -> list[int]:
    """A width per layer; one number stands for all of them."""
    dims = [dim] * layers if isinstance(dim, int) else list(dim)
    if len(dims) != layers:
        raise SeqloomError(f"{layers} layers need {layers} widths, here {len(dims)}: {dims}")
    return dims


def _norm(size: int) -> nn.LayerNorm:
    """Scale only: the shift is the cell's bias."""
    return nn.LayerNorm(size, bias=False)
