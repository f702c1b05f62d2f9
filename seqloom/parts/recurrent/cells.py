"""Recurrent cells: one step of a few lines each. `layers.py` gives any of them depth, directions and masking.

A cell's state is a tuple of tensors [R, dim], the first of them h. Its parameters are W [gates·dim, input], U
[gates·dim, dim] and one trainable bias per gate; torch's fused kernels want a second bias, which is always zero here.

`norm=True` adds layer normalization (Ba et al. 2016, https://arxiv.org/abs/1607.06450): W x and U h are normalized at
every step; the cell's one bias is their shift. There is no kernel for it: it runs step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError, known
from seqloom.fast.lstm import gpu as lstm_gpu
from seqloom.fast.lstm.pointwise import LstmPointwise
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
        self.affine = not norm
        self.stepwise |= norm or activation == "none"

    def input(self, x: Tensor) -> Tensor:
        return super().input(x) if self.norm is None else F.linear(x, self.weight)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = torch.addmm(gates, state[0], self.recurrent.mT)
        if self.norm is not None:
            h = self.norm(h) + self.bias
        if self.activation != "none":
            h = h.tanh() if self.activation == "tanh" else h.relu()
        return (h,), (h,)

    def act(self, gates: Tensor, state: CellState) -> CellState:
        return (gates.tanh() if self.activation == "tanh" else gates.relu(),)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        y, h = kernel(
            x, state[0][None].contiguous(), self._weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
        return y, (h[0],)


class GruCell(Cell):
    """R = σ(W_r x + U_r h + b_r), Z = σ(W_z x + U_z h + b_z), h' = Z⊙h + (1−Z)⊙H̃ (Cho et al. 2014, section 2.3).

    `reset_gate="before"`: H̃ = tanh(W x + (R⊙h) U + b), as in the paper; runs step by step.
    `reset_gate="after"`: H̃ = tanh(W x + b + R⊙(h U)), the form of torch's fused kernel.
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
        self.affine = not norm
        self.stepwise |= norm

    def input(self, x: Tensor) -> Tensor:
        if self.norms is None:
            return super().input(x)
        gates, candidate = F.linear(x, self.weight).split([2 * self.dim, self.dim], -1)
        return torch.cat([self.norms[0](gates), self.norms[1](candidate)], -1) + self.bias

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, d = state[0], self.dim
        if self.reset_gate == "after":
            inner = F.linear(h, self.recurrent)
            r, z = torch.sigmoid(gates[:, : 2 * d] + self._normed(inner[:, : 2 * d], 2)).chunk(2, -1)
            candidate = torch.tanh(gates[:, 2 * d :] + r * self._normed(inner[:, 2 * d :], 3))
        else:
            r, z = torch.sigmoid(gates[:, : 2 * d] + self._normed(F.linear(h, self.recurrent[: 2 * d]), 2)).chunk(2, -1)
            candidate = torch.tanh(gates[:, 2 * d :] + self._normed(F.linear(r * h, self.recurrent[2 * d :]), 3))
        h = candidate + z * (h - candidate)  # Z⊙h + (1−Z)⊙H̃ with one multiplication less
        return (h,), (r, z, candidate, h)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if self.reset_gate == "before":
            return None
        y, h = torch.gru(
            x, state[0][None].contiguous(), self._weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
        return y, (h[0],)

    def _normed(self, inner: Tensor, which: int) -> Tensor:
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
        self.affine = not norm
        self.stepwise |= norm

    def input(self, x: Tensor) -> Tensor:
        if self.norms is None:
            return super().input(x)
        return self.norms[0](F.linear(x, self.weight)) + self.bias

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state
        if self.norms is not None:
            gates = gates + self.norms[1](F.linear(h, self.recurrent))
        elif gates.is_cuda and gates.dtype.itemsize < 4:  # one kernel for all pointwise operations, in full precision
            inner = F.linear(h, self.recurrent).float()
            h, c, activations = torch.ops.aten._thnn_fused_lstm_cell(gates.float(), inner, c.float())
            return (h, c), (*activations.chunk(4, -1), c, h)
        else:
            gates = torch.addmm(gates, h, self.recurrent.mT)
        i, f, g, o, c, h = self._gated(gates, c)
        return (h, c), (i, f, g, o, c, h)

    def _gated(self, gates: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        # One sigmoid over all four gates is faster than three over slices, though g's result is unused; in place,
        # because for many rows allocating costs as much as computing.
        g = gates.chunk(4, -1)[2].tanh()
        i, f, _, o = gates.sigmoid_().chunk(4, -1)
        c = torch.addcmul(i * g, f, c)
        return i, f, g, o, c, o * (c if self.norms is None else self.norms[2](c)).tanh()

    def act(self, gates: Tensor, state: CellState) -> CellState:
        if torch.is_grad_enabled():
            return LstmPointwise.apply(gates, state[1])
        *_, c, h = self._gated(gates, state[1])
        return h, c

    def fused(self, x: Tensor, state: CellState, weight: Tensor | None = None) -> tuple[Tensor, CellState]:
        h, c = (part[None].contiguous() for part in state)
        y, h, c = torch.lstm(x, (h, c), self._weights(weight), True, 1, 0.0, torch.is_grad_enabled(), False, True)
        return y, (h[0], c[0])

    def fused_bf16(self, x: Tensor, state: CellState) -> tuple[Tensor, ...] | None:
        if not lstm_gpu.supported(x, self.dim):
            return None
        return lstm_gpu.lstm(x, (state[0], state[1]), (self.weight, self.recurrent, self.bias))

    def hold_padding(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The kernel returns c after the last step only. An extra input feature, 1 at padded positions, closes the
        input gate and opens the forget gate there, so that c does not change after a row's last real step. Eight
        columns, of which one is used, keep the matmuls aligned."""
        flag = F.pad((~real).to(x.dtype)[:, :, None], (0, 7))
        column = x.new_zeros(4 * self.dim, 8)
        column[: self.dim, 0], column[self.dim : 2 * self.dim, 0] = -1e4, 1e4
        return torch.cat([x, flag], -1), torch.cat([self.weight, column], 1)


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
