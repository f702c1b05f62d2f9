"""Cells that look back over all that they have been: attention inside the recurrence.

Their state grows: behind the tensors of a fixed size stands a tape, blocks of (keys [R, S, K], values [R, S, V], seen
[R, S]), rows first, in which `seen` is 0 where a row has nothing. `window` keeps the last so many entries; only then
does the state stay small enough to go on from batch to batch of a stream. Without it every batch of a stream is read by
itself, as by a Transformer, and a text that is written has its whole tape in memory. Training takes a step at a time,
but on a GPU, where it can, all steps by one kernel: see `fast/self_attention_cells`.
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

Block = tuple[Tensor, ...]
Tape = tuple[Block, ...]
# Entries of a block: for its gradient every step keeps what it looked at, and only the last block is a copy of its own.
# A GPU has the memory for longer copies, and waits for every kernel that a further block costs.
BLOCK = {"cpu": 32, "cuda": 256}


class LookBack(Probed):
    """Attention over a tape by any score. Reports its weights at every step, [R, 1, S]; S grows."""

    def __init__(self, query_dim: int, dim: int, score: Choice, window: int | None) -> None:
        super().__init__()
        if window is not None and window < 1:
            raise SeqloomError(f"window of a tape is at least 1, here {window}")
        self.score = build(SCORES, score, query_dim=query_dim, key_dim=dim)
        self.dim, self.window = dim, window

    def write(self, tape: Tape, h: Tensor, value: Tensor, there: Tensor) -> Tape:
        """One more entry a row: h [R, dim] to be found by, what is read there [R, V], and [R, 1], 0 if it is none."""
        last: Block = (self.score.keys(h[:, None]), value[:, None], there)
        if tape and tape[-1][2].size(1) < BLOCK.get(h.device.type, 32):
            last = tuple(torch.cat(pair, 1) for pair in zip(tape[-1], last, strict=True))
            tape = tape[:-1]
        tape = (*tape, last)
        return tape if self.window is None else _cut(tape, self.window)

    @property
    def whole(self) -> bool:
        """Whether nobody watches and nothing is cut off, so that steps need not be taken one by one."""
        return self.probe is None and self.window is None

    def forward(self, query: Tensor, tape: Tape) -> Tensor:
        """[R, query_dim] -> [R, V]; zeros where a row has no entry."""
        scores = _joined([self.score(query[:, None], keys) for keys, _, _ in tape])
        real = _joined([seen for _, _, seen in tape])[:, None]
        weights = scores.masked_fill(real == 0, torch.finfo(scores.dtype).min).softmax(-1) * real
        if self.probe:
            self.probe(weights.detach())
        shares = weights.split([seen.size(1) for _, _, seen in tape], -1)
        mixed = [share.to(values.dtype) @ values for share, (_, values, _) in zip(shares, tape, strict=True)]
        return torch.stack(mixed).sum(0)[:, 0] if len(mixed) > 1 else mixed[0][:, 0]


def _joined(parts: list[Tensor]) -> Tensor:
    """Along the last axis; one alone is not copied."""
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def _cut(tape: Tape, window: int) -> Tape:
    """The last `window` entries, where there is one more at most."""
    if sum(seen.size(1) for _, _, seen in tape) <= window:
        return tape
    first = tuple(part[:, 1:] for part in tape[0])
    return (first, *tape[1:]) if first[2].size(1) else tape[1:]


class AttentiveCell(Cell):
    """h_t = tanh(A [x_t; c_{t−1}] + b); c_t = Σ_s α_ts h_s over h_1 … h_t, α by any score of h_t and h_s; c_0 = 0. The
    layer gives c_t. A simple RNN (Elman 1990) with attention over its own past in the place of its last state, as Cheng
    et al. 2016 have it for the LSTM (https://arxiv.org/abs/1601.06733).

    A decoder's first state is c_0. `window`: c_t mixes the last so many h; see above for what that means in streams.
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
        self.look = LookBack(dim, dim, score, window)
        self.carries = window is not None

    def start(self, rows: int, like: Tensor) -> CellState:
        return like.new_zeros(rows, self.dim), ()

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = torch.addmm(gates, state[0], self.recurrent.mT).tanh()
        tape = self.look.write(state[1] if len(state) > 1 else (), h, h, h.new_ones(h.size(0), 1))
        c = self.look(h, tape)
        return (c, tape), (h, c)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        look, score = self.look, self.look.score
        product = type(score) in (Scaled, Dot)
        if not product or not look.whole or any(state[1:]) or not fused_history.supported(x, self.dim):
            return None
        scale = score.scale if isinstance(score, Scaled) else 1.0
        y, h = fused_history.attentive(self.input(x), self.recurrent, state[0], scale)
        return y, (y[:, -1], ((h, h, h.new_ones(h.shape[:2])),))


class LstmnCell(Cell):
    """The LSTM whose one memory cell is a tape (LSTMN: Cheng et al. 2016, equations 4 to 9,
    https://arxiv.org/abs/1601.06733):

    a_ti = vᵀ tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t−1}) for i < t, or another score of [x_t; h̃_{t−1}] and h_i;
    [h̃_t; c̃_t] = Σ_i softmax(a_t)_i [h_i; c_i], zeros for the first step;
    i, f, o = σ(W x_t + U h̃_t + b), g = tanh(…); c_t = f⊙c̃_t + i⊙g; h_t = o⊙tanh(c_t).

    What a decoder starts from stands first on its tape. The paper's score, `additive`, keeps an answer for every pair
    of steps while it trains, memory that grows with the square of the length; `general` does not. `forget_bias`: see
    the LSTM; `window`: how many entries back it looks, see above for what that means in streams.
    """

    gates = 4
    parts = 2
    names = ("input", "forget", "candidate", "output", "cell", "state")
    affine = False  # x itself is asked with

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
        self.look = LookBack(input_dim + dim, dim, score, window)
        self.carries = window is not None

    def start(self, rows: int, like: Tensor) -> CellState:
        """h and c, h̃, whether h and c are an entry yet to be written, and the tape before them."""
        h, there = like.new_zeros(rows, self.dim), like.new_zeros(rows, 1)
        return h, h, h, there, ()

    def input(self, x: Tensor) -> Tensor:
        return torch.cat([super().input(x), x], -1)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state[:2]
        gates, x = gates.split([4 * self.dim, self.input_dim], -1)
        one = h.new_ones(h.size(0), 1)
        asked, there, tape = state[2:] or (torch.zeros_like(h), one, ())
        tape = self.look.write(tape, h, torch.cat([h, c], -1), there)
        asked, c = self.look(torch.cat([x, asked], -1), tape).chunk(2, -1)
        gates = gates + F.linear(asked, self.recurrent)
        g = gates.chunk(4, -1)[2].tanh()
        i, f, _, o = gates.sigmoid().chunk(4, -1)
        c = torch.addcmul(i * g, f, c)
        h = o * c.tanh()
        return (h, c, asked, one, tape), (i, f, g, o, c, h)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        score = self.look.score
        if type(score) is not Additive or not self.look.whole or any(state[4:]):
            return None
        if not fused_history.supported(x, self.dim, score.weight.size(0)):
            return None
        h, c = state[:2]
        asked, there = state[2:4] or (torch.zeros_like(h), h.new_ones(h.size(0), 1))
        of_x, of_asked = score.query.weight.split([self.input_dim, self.dim], 1)
        gates, asks = super().input(x), F.linear(x, of_x, score.query.bias)
        weights = (score.key.weight, of_asked, score.weight)
        values, keys, asked = fused_history.lstmn(gates, asks, (h, c, asked, there), self.recurrent, weights)
        one = torch.ones_like(there)
        tape: Tape = ((keys, values[:, :-1], torch.cat([there, one.expand(-1, x.size(1) - 1)], 1)),)
        return values[:, 1:, : self.dim].contiguous(), (*values[:, -1].chunk(2, -1), asked, one, tape)

    def ends(self, y: Tensor, state: CellState, lengths: Tensor) -> CellState:
        """c of every step but the last is on the tape, behind what stood there before the first."""
        c = torch.cat([state[4][0][1][:, 1:, self.dim :], state[1][:, None]], 1)
        return last(y, lengths), last(c, lengths)
