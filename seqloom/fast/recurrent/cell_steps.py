"""Single steps of cells with fewer operations: sums within a matmul, one sigmoid over all gates, in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.fast.recurrent.pointwise import gated
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.cells import GruCell, LstmCell, RnnCell
from seqloom.parts.recurrent.self_attention_cells import AttentiveCell, LstmnCell

Step = tuple[CellState, tuple[Tensor, ...]]


def supported(self: Cell, gates: Tensor, state: CellState) -> bool:
    return True


@twin_of(RnnCell.step, supported, compiles=True)
def rnn_step(self: RnnCell, gates: Tensor, state: CellState) -> Step:
    h = torch.addmm(gates, state[0], self.recurrent.mT)
    if self.norm is not None:
        h = self.norm(h) + self.bias
    if self.activation != "none":
        h = h.tanh() if self.activation == "tanh" else h.relu()
    return (h,), (h,)


@twin_of(GruCell.step, supported, compiles=True)
def gru_step(self: GruCell, gates: Tensor, state: CellState) -> Step:
    h, d = state[0], self.dim
    if self.reset_gate == "after":
        inner = F.linear(h, self.recurrent)
        r, z = torch.sigmoid(gates[:, : 2 * d] + self.normed(inner[:, : 2 * d], 2)).chunk(2, -1)
        candidate = torch.tanh(gates[:, 2 * d :] + r * self.normed(inner[:, 2 * d :], 3))
    else:
        r, z = torch.sigmoid(gates[:, : 2 * d] + self.normed(F.linear(h, self.recurrent[: 2 * d]), 2)).chunk(2, -1)
        candidate = torch.tanh(gates[:, 2 * d :] + self.normed(F.linear(r * h, self.recurrent[2 * d :]), 3))
    h = candidate + z * (h - candidate)  # Z⊙h + (1−Z)⊙H̃ with one multiplication less
    return (h,), (r, z, candidate, h)


@twin_of(LstmCell.step, supported, compiles=True)
def lstm_step(self: LstmCell, gates: Tensor, state: CellState) -> Step:
    h, c = state
    if self.norms is None:
        gates = torch.addmm(gates, h, self.recurrent.mT)
    else:
        gates = gates + self.norms[1](F.linear(h, self.recurrent))
    i, f, g, o, c = gated(gates, c)
    h = o * self.normed(c, 2).tanh()
    return (h, c), (i, f, g, o, c, h)


@twin_of(AttentiveCell.step, supported, compiles=True)
def attentive_step(self: AttentiveCell, gates: Tensor, state: CellState) -> Step:
    h = torch.addmm(gates, state[0], self.recurrent.mT).tanh()
    history = self.look.append(state[1] if len(state) > 1 else (), h, h, h.new_ones(h.size(0), 1))
    c = self.look(h, history)
    return (c, history), (h, c)


@twin_of(LstmnCell.step, supported, compiles=True)
def lstmn_step(self: LstmnCell, gates: Tensor, state: CellState) -> Step:
    h, c = state[:2]
    gates, x = gates.split([4 * self.dim, self.input_dim], -1)
    one = h.new_ones(h.size(0), 1)
    h_tilde, real, history = state[2:] or (torch.zeros_like(h), one, ())
    history = self.look.append(history, h, torch.cat([h, c], -1), real)
    h_tilde, c = self.look(torch.cat([x, h_tilde], -1), history).chunk(2, -1)
    i, f, g, o, c = gated(gates + F.linear(h_tilde, self.recurrent), c)
    h = o * c.tanh()
    return (h, c, h_tilde, one, history), (i, f, g, o, c, h)
