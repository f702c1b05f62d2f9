"""Cells whose gates know the input alone, not the state before: training them needs no loop over time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.scan import scan


class MinGruCell(Cell):
    """z = σ(W_z x + b_z), h̃ = g(W_h x + b_h), h' = (1−z)⊙h + z⊙h̃ (minGRU: Feng et al. 2024, appendix B,
    https://arxiv.org/abs/2410.01201), with g(v) = v + ½ where v ≥ 0, else σ(v), which is above zero everywhere.

    All steps at once by a scan; one step at a time by the same formula. No matrix leads from state to state.
    """

    gates = 2
    names = ("update", "candidate", "state")
    inner = False

    def weighed(self, gates: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """From `input`: the share of the old state that is kept, the candidate, and the gates to report."""
        z, candidate = gates.chunk(2, -1)
        return torch.sigmoid(-z), _positive(candidate), (z.sigmoid(),)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        kept, candidate, active = self.weighed(_full(gates))
        h = (candidate + kept * (state[0] - candidate)).to(state[0].dtype)
        return (h,), (*(gate.to(h.dtype) for gate in (*active, candidate)), h)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        kept, candidate, _ = self.weighed(_full(self.input(x)))
        h = scan(kept, (1 - kept) * candidate, state[0].to(kept.dtype)).to(x.dtype)
        return h, (h[:, -1],)


class MinLstmCell(MinGruCell):
    """f = σ(W_f x + b_f), i = σ(W_i x + b_i), h̃ = g(W_h x + b_h), h' = f/(f+i)⊙h + i/(f+i)⊙h̃ (minLSTM: Feng et al.
    2024, appendix B, https://arxiv.org/abs/2410.01201); g as in minGRU. The two shares are what is reported.

    `forget_bias` is the bias the forget gate starts with (Jozefowicz et al. 2015, section 3.1).
    """

    gates = 3
    names = ("input", "forget", "candidate", "state")

    def __init__(self, input_dim: int, dim: int, forget_bias: float = 1.0, zoneout: float | list[float] = 0.0) -> None:
        super().__init__(input_dim, dim, zoneout)
        with torch.no_grad():
            self.bias[dim : 2 * dim] = forget_bias

    def weighed(self, gates: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        i, f, candidate = gates.chunk(3, -1)
        apart = F.logsigmoid(f) - F.logsigmoid(i)  # so that f/(f+i) is right where both are nearly zero
        kept = apart.sigmoid()
        return kept, _positive(candidate), (torch.sigmoid(-apart), kept)


def _positive(v: Tensor) -> Tensor:
    return torch.where(v >= 0, v + 0.5, v.sigmoid())


def _full(gates: Tensor) -> Tensor:
    """Half precision cannot tell 0.999 from 1, which over many steps is the difference between memory and none."""
    return gates.float() if gates.dtype.itemsize < 4 else gates
