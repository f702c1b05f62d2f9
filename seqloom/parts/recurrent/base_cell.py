"""The base class of recurrent cells. `layers.py` gives any cell, also a user's own, depth, directions and masking."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError

CellState = tuple[Any, ...]  # `parts` tensors [R, dim], h first; then what only the next step needs


class Cell(nn.Module):
    """W x + b and the matrix U. A new cell defines `gates`, `names` and `step`.

    `zoneout`: the probability that a value of the state keeps its previous value. Drawn at every step in training; in
    evaluation the old and new values are mixed by it (Krueger et al. 2017, section 3, https://arxiv.org/abs/1606.01305).
    A list has one probability for each tensor of the state: of an LSTM, h and c.
    """

    gates: int = 1
    parts: int = 1  # tensors of fixed size in the state: h, or h and c
    names: tuple[str, ...] = ()  # the activations that `step` returns; "state" is h, "cell" is c
    has_recurrent: bool = True  # whether the gates depend on the state through a matrix U
    carries: bool = True  # whether its state has a fixed size, so that it may be carried from batch to batch
    recurrent: nn.Parameter

    def __init__(self, input_dim: int, dim: int, zoneout: float | list[float] = 0.0) -> None:
        super().__init__()
        self.input_dim, self.dim = input_dim, dim
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(self.gates * dim, input_dim).uniform_(-bound, bound))
        if self.has_recurrent:
            self.recurrent = nn.Parameter(torch.empty(self.gates * dim, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(self.gates * dim))
        self.zoneout = _rates(zoneout, self.parts)

    def start(self, rows: int, like: Tensor) -> CellState:
        return tuple(like.new_zeros(rows, self.dim) for _ in range(self.parts))

    def input(self, x: Tensor) -> Tensor:
        """W x + b for all steps at once, [..., input] -> [..., gates·dim]."""
        return F.linear(x, self.weight, self.bias)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        """One step from `input(x_t)` [R, gates·dim]: the new state, and the activations named in `names`."""
        raise NotImplementedError

    def all_steps(self, x: Tensor, state: CellState) -> tuple[Tensor, ...] | None:
        """The state after every step, each part [R, T, dim], from x [R, T, input], for a cell whose equation needs no
        loop over time, as minGRU's; None: step by step. Without zoneout."""
        return None

    def forward(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        """`step` with zoneout. A call of the module, so that forward hooks see every step."""
        new, active = self.step(gates, state)
        if not any(self.zoneout):
            return new, active
        mixed = tuple(map(self._zoneout, state, new, self.zoneout))
        report = dict(zip(self.names, active, strict=True)) | {"state": mixed[0]}
        if "cell" in report:
            report["cell"] = mixed[1]
        return (*mixed, *new[self.parts :]), tuple(report[name] for name in self.names)

    def _zoneout(self, old: Tensor, new: Tensor, rate: float) -> Tensor:
        if not self.training:
            return new + rate * (old - new)
        return torch.where(torch.rand_like(new) < rate, old.to(new.dtype), new)


def _rates(zoneout: float | list[float], parts: int) -> list[float]:
    rates = list(zoneout) if isinstance(zoneout, list | tuple) else [zoneout] * parts
    if len(rates) != parts:
        raise SeqloomError(f"zoneout is one share, or {parts} for this cell, here {len(rates)}: {rates}")
    if not all(isinstance(rate, int | float) and 0 <= rate < 1 for rate in rates):
        raise SeqloomError(f"zoneout is at least 0 and below 1, here {zoneout}")
    return [float(rate) for rate in rates]
