"""Stacks that read from left to right: [R, T, input_dim] -> [R, T, dim], on and on from a state.

`begin(room)` gives the state before the first step; `forward(x, state)` takes any number of steps from there, and
without a state reads a whole row for training. Names inside are those of the encoders: weights fit there too.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.models.encoders.convolutional import ConvolutionStack
from seqloom.models.encoders.encoders import Enter
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.head_projections import agree
from seqloom.parts.mixers.mixers import MIXERS
from seqloom.parts.positions.positions import POSITIONS, Position
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.recurrent import Recurrent
from seqloom.parts.state import State, pick
from seqloom.parts.transformer.block import Block, Ways, through
from seqloom.parts.transformer.reversible import inner, read, step
from seqloom.parts.visibility import See


class RecurrentStack(nn.Module):
    """An RNN, GRU or LSTM as a language model (Mikolov et al. 2010; Zaremba et al. 2014).

    `weight_drop` and `lock`: see Recurrent. Its state may go on from batch to batch, but for a cell with a tape, which
    needs a `window` for that: without one every batch is read by itself.
    """

    def __init__(
        self,
        input_dim: int,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 512,
        layers: int = 1,
        dropout: float = 0.0,
        weight_drop: float = 0.0,
        lock: bool = False,
    ) -> None:
        super().__init__()
        self.recurrent = Recurrent(input_dim, dim, cell, layers, 1, dropout, weight_drop, lock)
        self.dim, self.carries = self.recurrent.out_dim, self.recurrent.carries

    def begin(self, room: int | None = None) -> State:
        return None

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        return self.recurrent(x, See(causal=True), state)


class View:
    """What a Transformer has before its eyes: keys and values, or what else its mixers keep; and what they were made
    of, where it may have to be read again: with a `room`."""

    def __init__(self, caches: tuple[State, ...], room: int | None) -> None:
        self.room = room
        self.caches = caches
        self.seen: Tensor | None = None  # [R, room, input_dim], of which `used` are filled

    @property
    def used(self) -> int:
        return self.caches[0].used

    def keep(self, x: Tensor) -> None:
        """Note what is about to be read, where it may have to be read again."""
        if self.room is None:
            return
        if self.seen is None:
            self.seen = x.new_empty(x.size(0), self.room, x.size(2))
        self.seen[:, self.used : self.used + x.size(1)] = x

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> View:
        other = View(pick(self.caches, rows), self.room)
        other.seen = None if self.seen is None else self.seen.index_select(0, rows)
        return other


class TransformerStack(nn.Module):
    """Blocks of masked self-attention (Vaswani et al. 2017; as a language model: Radford et al. 2018), or of another
    `mixer` that does without what comes after.

    With a `room`, memory stays within it: when it is full, the last half of what was read is read again from place 0
    on. So every token sees between half the room and all of it, at places that training knew; and as it happens at
    fixed steps, steps in any pieces are the same. Where no mixer's state grows and tokens know their distances alone,
    nothing is read again. `residual`: see Ways; or `reversible`, with which memory in training does not grow with
    `layers` (Gomez et al. 2017, see `reversible.read`). `bias`: whether blocks' linear maps have one (Chowdhery et al.
    2022 leave it out).
    """

    carries = False

    def __init__(
        self,
        input_dim: int,
        dim: int = 256,
        layers: int = 3,
        heads: int = 4,
        hidden: int = 1024,
        position: Annotated[Choice, POSITIONS] = "rotary",
        score: Annotated[Choice, SCORES] = "scaled",
        norm: str = "before",
        norm_kind: Annotated[Choice, NORMS] = "layer",
        residual: str = "add",
        activation: str = "gelu",
        dropout: float = 0.1,
        scale: bool = True,
        mixer: Annotated[Choice, MIXERS] = "attention",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.enter = Enter(input_dim, dim, position, dim // heads, dropout, scale)
        self.reversible, residual = residual == "reversible", inner(residual, norm, norm_kind)
        kinds = {"norm_kind": norm_kind, "residual": residual}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, 0, score, activation, norm, dropout, mixer, causal=True, **kinds)
            for _ in range(layers)
        )
        for part in () if bias else self.blocks.modules():
            if isinstance(part, nn.Linear):
                part.register_parameter("bias", None)
        agree(self.blocks, self.enter.position)
        self.ways = Ways(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim = dim

    def begin(self, room: int | None = None) -> View:
        if room is not None and room < 2:
            raise SeqloomError(f"a Transformer needs room for 2 tokens at least, here {room}")
        return View(tuple(block.mix.begin(room) for block in self.blocks), None if self.endless else room)  # pyright: ignore

    @property
    def endless(self) -> bool:
        placed = type(self.enter.position).forward is not Position.forward  # at places that training knew, or unknown
        return not placed and all(block.mix.bounded for block in self.blocks)  # pyright: ignore

    def forward(
        self, x: Tensor, state: View | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, View | None]:
        """`lengths` [R]: how many places are real, for a norm that looks across the batch."""
        if state is None or state.room is None:
            return self._read(x, state, lengths), state
        outputs, room = [], state.room
        while x.size(1):
            if state.used == room:
                state = self._again(state, room)
            now, x = x.split([n := min(room - state.used, x.size(1)), x.size(1) - n], 1)
            state.keep(now)
            outputs.append(self._read(now, state))
        return torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0], state

    def _again(self, full: View, room: int) -> View:
        assert full.seen is not None
        half, fresh = full.seen[:, room - room // 2 :], self.begin(room)
        fresh.keep(half)
        self._read(half, fresh)
        return fresh

    def _read(self, x: Tensor, view: View | None, lengths: Tensor | None = None) -> Tensor:
        see, x = See(causal=True, lengths=lengths), self.enter(x, 0 if view is None else view.used)
        if view is None and self.reversible:
            return self.norm(read(self.blocks, x, see, self.enter.position), lengths)
        states = None if view is None else view.caches
        if self.reversible:
            x, states = step(self.blocks, x, see, states or (), self.enter.position)
            x = self.norm(x, lengths)
        else:
            _, x, states = through(self, x, see, self.enter.position, states)
        if view is not None:
            view.caches = tuple(states)
        return x


_WINDOW = {"kind": "convolution", "layers": 1, "activation": "tanh", "norm_kind": "none", "residual": "none"}
STACKS = {
    "recurrent": RecurrentStack,
    "rnn": {"kind": "recurrent", "cell": "rnn"},
    "gru": {"kind": "recurrent", "cell": "gru"},
    "lstm": {"kind": "recurrent", "cell": "lstm"},
    "transformer": TransformerStack,
    "convolution": ConvolutionStack,
    "window": {**_WINDOW, "width": 5},
    "single": {**_WINDOW, "width": 1},
}
