"""Cells whose gates depend on the input alone, not on the previous state: training them needs no loop over time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.scan import scan


class MinGruCell(Cell):
    """z = σ(W_z x + b_z), h̃ = g(W_h x + b_h), h' = (1−z)⊙h + z⊙h̃ (minGRU: Feng et al. 2024, appendix B,
    https://arxiv.org/abs/2410.01201), with g(v) = v + ½ where v ≥ 0, else σ(v), which is positive everywhere.

    All steps at once by a scan, or one step by the same formula. There is no recurrent matrix.
    """

    gates = 2
    names = ("update", "candidate", "state")
    has_recurrent = False

    def coefficients(self, gates: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """From `input`: the coefficient of the old state, the candidate, and the gates to report."""
        z, candidate = gates.chunk(2, -1)
        return torch.sigmoid(-z), _positive(candidate), (z.sigmoid(),)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        decay, candidate, active = self.coefficients(_float32(gates))
        h = (candidate + decay * (state[0] - candidate)).to(state[0].dtype)
        return (h,), (*(gate.to(h.dtype) for gate in (*active, candidate)), h)

    def all_steps(self, x: Tensor, state: CellState) -> tuple[Tensor]:
        decay, candidate, _ = self.coefficients(_float32(self.input(x)))
        return (scan(decay, (1 - decay) * candidate, state[0].to(decay.dtype)).to(x.dtype),)


class MinLstmCell(MinGruCell):
    """f = σ(W_f x + b_f), i = σ(W_i x + b_i), h̃ = g(W_h x + b_h), h' = f/(f+i)⊙h + i/(f+i)⊙h̃ (minLSTM: Feng et al.
    2024, appendix B, https://arxiv.org/abs/2410.01201); g as in minGRU. The two coefficients are reported.

    `forget_bias`: the initial bias of the forget gate (Jozefowicz et al. 2015, section 3.1).
    """

    gates = 3
    names = ("input", "forget", "candidate", "state")

    def __init__(self, input_dim: int, dim: int, forget_bias: float = 1.0, zoneout: float | list[float] = 0.0) -> None:
        super().__init__(input_dim, dim, zoneout)
        with torch.no_grad():
            self.bias[dim : 2 * dim] = forget_bias

    def coefficients(self, gates: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        i, f, candidate = gates.chunk(3, -1)
        log_ratio = F.logsigmoid(f) - F.logsigmoid(i)  # f/(f+i) is then accurate where both are nearly zero
        decay = log_ratio.sigmoid()
        return decay, _positive(candidate), (torch.sigmoid(-log_ratio), decay)


def _positive(v: Tensor) -> Tensor:
    return torch.where(v >= 0, v + 0.5, v.sigmoid())


def _float32(gates: Tensor) -> Tensor:
    """In bf16 0.999 rounds to 1: over many steps the difference between forgetting and not."""
    return gates.float() if gates.dtype.itemsize < 4 else gates
