"""Recurrent cells with self-attention over their own past states.

Their state grows: after the tensors of fixed size comes the history, blocks of (keys [R, S, K], values [R, S, V], real
[R, S]), with `real` 0 where a row has no entry. `window` keeps only the last entries; only then has the state a fixed
size and can be carried from batch to batch of a stream. Without it every batch is read from an empty history, and
generation keeps the whole history in memory. Training runs step by step, or, where supported on a GPU, all steps in one
kernel: see `fast/self_attention_cells/gpu.py`.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.fast.self_attention_cells import gpu as fused_history
from seqloom.parts.attention.scores import SCORES, Additive, Dot, Scaled
from seqloom.parts.probe import Probed
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.visibility import last

HistoryBlock = tuple[Tensor, ...]
History = tuple[HistoryBlock, ...]
# Entries per block. Autograd saves the history of every step, but of these only the last block is a new copy. A GPU has
# the memory for larger copies, and every further block costs kernel launches.
BLOCK_SIZE = {"cpu": 32, "cuda": 256}


class HistoryAttention(Probed):
    """Attention over the history by any score. Reports its weights at every step, [R, 1, S]; S grows."""

    def __init__(self, query_dim: int, dim: int, score: Choice, window: int | None) -> None:
        super().__init__()
        if window is not None and window < 1:
            raise SeqloomError(f"window of a self-attention cell is at least 1, here {window}")
        self.score = build(SCORES, score, query_dim=query_dim, key_dim=dim)
        self.dim, self.window = dim, window

    def append(self, history: History, h: Tensor, value: Tensor, real: Tensor) -> History:
        """One more entry a row: h [R, dim] for its key, its value [R, V], and `real` [R, 1], 0 for no entry."""
        last: HistoryBlock = (self.score.keys(h[:, None]), value[:, None], real)
        if history and history[-1][2].size(1) < BLOCK_SIZE.get(h.device.type, 32):
            last = tuple(torch.cat(pair, 1) for pair in zip(history[-1], last, strict=True))
            history = history[:-1]
        history = (*history, last)
        return history if self.window is None else _last_entries(history, self.window)

    @property
    def supports_fused(self) -> bool:
        """Without a probe and a window all steps can run in one kernel."""
        return self.probe is None and self.window is None

    def forward(self, query: Tensor, history: History) -> Tensor:
        """[R, query_dim] -> [R, V]; zeros where a row has no entry."""
        scores = _cat([self.score(query[:, None], keys) for keys, _, _ in history])
        real = _cat([real for _, _, real in history])[:, None]
        weights = scores.masked_fill(real == 0, torch.finfo(scores.dtype).min).softmax(-1) * real
        if self.probe:
            self.probe(weights.detach())
        by_block = weights.split([values.size(1) for _, values, _ in history], -1)
        sums = [part.to(values.dtype) @ values for part, (_, values, _) in zip(by_block, history, strict=True)]
        return torch.stack(sums).sum(0)[:, 0] if len(sums) > 1 else sums[0][:, 0]


def _cat(parts: list[Tensor]) -> Tensor:
    """Along the last axis; a single tensor is not copied."""
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def _last_entries(history: History, window: int) -> History:
    """The last `window` entries, of at most one more."""
    if sum(real.size(1) for _, _, real in history) <= window:
        return history
    first = tuple(part[:, 1:] for part in history[0])
    return (first, *history[1:]) if first[2].size(1) else history[1:]


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

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = torch.addmm(gates, state[0], self.recurrent.mT).tanh()
        history = self.look.append(state[1] if len(state) > 1 else (), h, h, h.new_ones(h.size(0), 1))
        c = self.look(h, history)
        return (c, history), (h, c)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        look, score = self.look, self.look.score
        is_dot = type(score) in (Scaled, Dot)
        if not is_dot or not look.supports_fused or any(state[1:]) or not fused_history.supported(x, self.dim):
            return None
        scale = score.scale if isinstance(score, Scaled) else 1.0
        y, h = fused_history.attentive(self.input(x), self.recurrent, state[0], scale)
        return y, (y[:, -1], ((h, h, h.new_ones(h.shape[:2])),))


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
    affine = False  # x is also part of the query

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

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state[:2]
        gates, x = gates.split([4 * self.dim, self.input_dim], -1)
        one = h.new_ones(h.size(0), 1)
        h_tilde, real, history = state[2:] or (torch.zeros_like(h), one, ())
        history = self.look.append(history, h, torch.cat([h, c], -1), real)
        h_tilde, c = self.look(torch.cat([x, h_tilde], -1), history).chunk(2, -1)
        gates = gates + F.linear(h_tilde, self.recurrent)
        g = gates.chunk(4, -1)[2].tanh()
        i, f, _, o = gates.sigmoid().chunk(4, -1)
        c = torch.addcmul(i * g, f, c)
        h = o * c.tanh()
        return (h, c, h_tilde, one, history), (i, f, g, o, c, h)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        score = self.look.score
        if type(score) is not Additive or not self.look.supports_fused or any(state[4:]):
            return None
        if not fused_history.supported(x, self.dim, score.weight.size(0)):
            return None
        h, c = state[:2]
        h_tilde, real = state[2:4] or (torch.zeros_like(h), h.new_ones(h.size(0), 1))
        of_x, of_h_tilde = score.query.weight.split([self.input_dim, self.dim], 1)
        gates, queries = super().input(x), F.linear(x, of_x, score.query.bias)
        weights = (score.key.weight, of_h_tilde, score.weight)
        values, keys, h_tilde = fused_history.lstmn(gates, queries, (h, c, h_tilde, real), self.recurrent, weights)
        one = torch.ones_like(real)
        history: History = ((keys, values[:, :-1], torch.cat([real, one.expand(-1, x.size(1) - 1)], 1)),)
        return values[:, 1:, : self.dim].contiguous(), (*values[:, -1].chunk(2, -1), h_tilde, one, history)

    def final_state(self, y: Tensor, state: CellState, lengths: Tensor) -> CellState:
        """c of every step but the last is in the history, after the entry of the first state."""
        c = torch.cat([state[4][0][1][:, 1:, self.dim :], state[1][:, None]], 1)
        return last(y, lengths), last(c, lengths)
