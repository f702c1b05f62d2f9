"""Recurrent cells with self-attention over their own past states.

Their state grows: after the tensors of fixed size comes the history, keys [R, S, K], values [R, S, V] and `real`
[R, S], 0 where a row has no entry. `window` keeps only the last entries; only then has the state a fixed size and can
be carried from batch to batch of a stream. Without it every batch is read from an empty history, and generation keeps
the whole history in memory.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.probe import Probed
from seqloom.parts.recurrent.base_cell import Cell, CellState

History = tuple[Any, ...]  # keys, values and real; () before the first entry


class HistoryAttention(Probed):
    """Attention over the history by any score. Reports its weights at every step, [R, 1, S]; S grows."""

    def __init__(self, query_dim: int, dim: int, score: Choice, window: int | None) -> None:
        super().__init__()
        if window is not None and window < 1:
            raise SeqloomError(f"window of a self-attention cell is at least 1, here {window}")
        self.score = build(SCORES, score, query_dim=query_dim, key_dim=dim)
        self.dim, self.window = dim, window

    @accelerated
    def append(self, history: History, h: Tensor, value: Tensor, real: Tensor) -> History:
        """One more entry a row: h [R, dim] for its key, its value [R, V], and `real` [R, 1], 0 for no entry."""
        entry = (self.score.keys(h[:, None]), value[:, None], real)
        history = tuple(torch.cat(pair, 1) for pair in zip(history, entry, strict=True)) if history else entry
        return history if self.window is None else tuple(part[:, -self.window :] for part in history)

    @accelerated
    def forward(self, query: Tensor, history: History) -> Tensor:
        """[R, query_dim] -> [R, V]; zeros where a row has no entry."""
        keys, values, real = history
        scores, real = self.score(query[:, None], keys), real[:, None]
        weights = scores.masked_fill(real == 0, torch.finfo(scores.dtype).min).softmax(-1) * real
        if self.probe:
            self.probe(weights.detach())
        return (weights.to(values.dtype) @ values)[:, 0]


class AttentiveCell(Cell):
    """h_t = tanh(A [x_t; c_{t−1}] + b); c_t = Σ_s α_ts h_s over h_1 … h_t, α by any score of h_t and h_s; c_0 = 0. The
    output is c_t. A simple RNN (Elman 1990) with attention over its past states instead of its last state, as in the
    LSTMN (Cheng et al. 2016, https://arxiv.org/abs/1601.06733).

    A decoder's first state is c_0. `window`: c_t is over the last so many h; for streams see the module's docstring.
    """

    gates = 1
    names = ("hidden", "state")

    def __init__(
        self,
        input_dim: int,
        dim: int,
        score: Annotated[Choice, SCORES] = "scaled",
        window: int | None = None,
        zoneout: float | list[float] = 0.0,
    ) -> None:
        super().__init__(input_dim, dim, zoneout)
        self.look = HistoryAttention(dim, dim, score, window)
        self.carries = window is not None

    def start(self, rows: int, like: Tensor) -> CellState:
        return like.new_zeros(rows, self.dim), ()

    @accelerated
    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = (gates + F.linear(state[0], self.recurrent)).tanh()
        history = self.look.append(state[1] if len(state) > 1 else (), h, h, h.new_ones(h.size(0), 1))
        c = self.look(h, history)
        return (c, history), (h, c)


class LstmnCell(Cell):
    """The LSTM with a memory of all its past h and c (LSTMN: Cheng et al. 2016, equations 4 to 9,
    https://arxiv.org/abs/1601.06733):

    a_ti = vᵀ tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t−1}) for i < t, or another score of [x_t; h̃_{t−1}] and h_i;
    [h̃_t; c̃_t] = Σ_i softmax(a_t)_i [h_i; c_i], zeros for the first step;
    i, f, o = σ(W x_t + U h̃_t + b), g = tanh(…); c_t = f⊙c̃_t + i⊙g; h_t = o⊙tanh(c_t).

    A decoder's first state is the first entry of its history. The paper's score, `additive`, saves a tensor for every
    pair of steps in training, so memory grows with the square of the length; `general` does not. `forget_bias`: see
    LstmCell; `window`: how many entries it attends to; for streams see the module's docstring.
    """

    gates = 4
    parts = 2
    names = ("input", "forget", "candidate", "output", "cell", "state")

    def __init__(
        self,
        input_dim: int,
        dim: int,
        score: Annotated[Choice, SCORES] = "additive",
        window: int | None = None,
        forget_bias: float = 1.0,
        zoneout: float | list[float] = 0.0,
    ) -> None:
        super().__init__(input_dim, dim, zoneout)
        with torch.no_grad():
            self.bias[dim : 2 * dim] = forget_bias
        self.look = HistoryAttention(input_dim + dim, dim, score, window)
        self.carries = window is not None

    def start(self, rows: int, like: Tensor) -> CellState:
        """h and c, h̃, whether h and c become an entry at the next step, and the history before them."""
        h, real = like.new_zeros(rows, self.dim), like.new_zeros(rows, 1)
        return h, h, h, real, ()

    def input(self, x: Tensor) -> Tensor:
        return torch.cat([super().input(x), x], -1)

    @accelerated
    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state[:2]
        gates, x = gates.split([4 * self.dim, self.input_dim], -1)
        one = h.new_ones(h.size(0), 1)
        h_tilde, real, history = state[2:] or (torch.zeros_like(h), one, ())
        history = self.look.append(history, h, torch.cat([h, c], -1), real)
        h_tilde, c_tilde = self.look(torch.cat([x, h_tilde], -1), history).chunk(2, -1)
        i, f, g, o = (gates + F.linear(h_tilde, self.recurrent)).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c_tilde + i * g
        h = o * c.tanh()
        return (h, c, h_tilde, one, history), (i, f, g, o, c, h)
