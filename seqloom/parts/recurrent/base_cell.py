"""What every recurrent cell has. The cells stand in `cell.py`, `minimal.py` and `tape.py`; `recurrent.py` gives any of
them, and a user's own, depth, directions, masking, stepping and looking."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.visibility import last

CellState = tuple[Any, ...]  # `parts` tensors [R, dim], the first of them h; behind them what only a next step needs


class Cell(nn.Module):
    """The products with W and U. A new cell says `gates`, `names` and `step`.

    `zoneout`: the share of a state's values that stay what they were: drawn anew at every step in training, mixed in by
    that share afterwards (Krueger et al. 2017, section 3, https://arxiv.org/abs/1606.01305). A list has one share for
    each tensor of the state: of an LSTM, h and c.
    """

    gates: int = 1
    parts: int = 1  # tensors in the state that have a fixed size: h, or h and c
    names: tuple[str, ...] = ()  # what `step` reports, in order; "state" is h and "cell" is c
    inner: bool = True  # whether the state goes through a matrix U on its way into the gates
    affine: bool = True  # whether `input` is W x + b and nothing else
    plain: bool = False  # whether it only runs step by step
    carries: bool = True  # whether its state keeps its size and may go on from batch to batch
    recurrent: nn.Parameter
    zero: Tensor

    def __init__(self, input_dim: int, dim: int, zoneout: float | list[float] = 0.0) -> None:
        super().__init__()
        self.input_dim, self.dim = input_dim, dim
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(self.gates * dim, input_dim).uniform_(-bound, bound))
        if self.inner:
            self.recurrent = nn.Parameter(torch.empty(self.gates * dim, dim).uniform_(-bound, bound))
            self.register_buffer("zero", torch.zeros(self.gates * dim), persistent=False)
        self.bias = nn.Parameter(torch.zeros(self.gates * dim))
        self.zoneout = _shares(zoneout, self.parts)
        if any(self.zoneout):
            self.plain = True

    @property
    def joint(self) -> Tensor:
        """The same parameters as the textbook draws them: [h; x] times one matrix [dim + input, gates·dim]."""
        return torch.cat([self.recurrent, self.weight], 1).mT

    def start(self, rows: int, like: Tensor) -> CellState:
        return tuple(like.new_zeros(rows, self.dim) for _ in range(self.parts))

    def input(self, x: Tensor) -> Tensor:
        """W x + b for all steps at once, [..., input] -> [..., gates·dim]: no loop over time is needed for this."""
        return F.linear(x, self.weight, self.bias)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        """One step from `input(x_t)` [R, gates·dim]: the new state, and the activations named in `names`."""
        raise NotImplementedError

    def forward(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        """`step`, with zone-out. A module's call, so that hooks hear every step of the plain path."""
        new, active = self.step(gates, state)
        if not any(self.zoneout):
            return new, active
        mixed = tuple(map(self._zoned, state, new, self.zoneout))
        said = dict(zip(self.names, active, strict=True)) | {"state": mixed[0]}
        if "cell" in said:
            said["cell"] = mixed[1]
        return (*mixed, *new[self.parts :]), tuple(said[name] for name in self.names)

    def act(self, gates: Tensor, state: CellState) -> CellState:
        """The new state from gates that hold U h already, for a cell whose gates are such a sum; others have none."""
        raise NotImplementedError

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        """All steps at once, [R, T, input] -> [R, T, dim], as by torch's kernels; None if there is no way.

        The kernel is told that it trains whenever gradients are on: cuDNN keeps what they need only then.
        """
        return None

    def halved(self, x: Tensor, state: CellState) -> tuple[Tensor, ...] | None:
        """The state after every step, each part [R, T, dim], by kernels of ours in half precision; None where there are
        none."""
        return None

    def ends(self, y: Tensor, state: CellState, lengths: Tensor) -> CellState:
        """The state after each row's last real step, from what `fused` gave."""
        return (last(y, lengths),)

    def hold(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor] | None:
        """Inputs and a W by which the state rests where `real` [R, T] is False; None if h alone is the state."""
        return None

    def _zoned(self, old: Tensor, new: Tensor, share: float) -> Tensor:
        if not self.training:
            return new + share * (old - new)
        return torch.where(torch.rand_like(new) < share, old.to(new.dtype), new)

    def _weights(self, weight: Tensor | None = None) -> list[Tensor]:
        weights = [self.weight if weight is None else weight, self.recurrent, self.bias, self.zero]
        if not self.weight.is_cuda:
            return weights
        # cuDNN wants one contiguous chunk; else it copies anyway and warns.
        chunk = torch.cat([w.flatten() for w in weights])
        return [part.view_as(w) for part, w in zip(chunk.split([w.numel() for w in weights]), weights, strict=True)]


def _shares(zoneout: float | list[float], parts: int) -> list[float]:
    shares = list(zoneout) if isinstance(zoneout, list | tuple) else [zoneout] * parts
    if len(shares) != parts:
        raise SeqloomError(f"zoneout is one share, or {parts} for this cell, here {len(shares)}: {shares}")
    if not all(0 <= share < 1 for share in shares):
        raise SeqloomError(f"zoneout is at least 0 and below 1, here {zoneout}")
    return [float(share) for share in shares]
