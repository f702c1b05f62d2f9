"""Causal stacks for language models: [R, T, input_dim] and a state -> [R, T, dim].

`begin(room)` gives the state before the first step; `forward(x, state)` takes any number of steps from there, and
without a state reads whole rows in training. Parameters have the names of the encoders', so weights can be transferred.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.models.encoders.convolutional import ConvolutionStack
from seqloom.models.encoders.transformer import TransformerInput
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.efficient_attention import check_positions
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.positions.position import Position
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.state import State, pick
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import SkipConnections
from seqloom.parts.transformer.reversible import block_residual, run_reversible, run_with_states
from seqloom.parts.visibility import Visibility


class RecurrentStack(nn.Module):
    """An RNN, GRU or LSTM as a language model (Mikolov et al. 2010; Zaremba et al. 2014).

    `weight_drop` and `locked_dropout`: see Recurrent. Its state is carried from batch to batch, except for a
    self-attention cell without `window`: then every batch starts anew.
    """

    def __init__(
        self,
        input_dim: int,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 512,
        layers: int = 1,
        dropout: float = 0.0,
        weight_drop: float = 0.0,
        locked_dropout: bool = False,
    ) -> None:
        super().__init__()
        self.recurrent = Recurrent(input_dim, dim, cell, layers, 1, dropout, weight_drop, locked_dropout)
        self.dim, self.carries = self.recurrent.out_dim, self.recurrent.carries

    def begin(self, room: int | None = None) -> State:
        return None

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        return self.recurrent(x, Visibility(causal=True), state)


class TransformerCache:
    """The state of a Transformer stack: its mixers' caches (keys and values), and, with a `room`, the inputs, which may
    have to be read again."""

    def __init__(self, caches: tuple[State, ...], room: int | None) -> None:
        self.room = room
        self.caches = caches
        self.inputs: Tensor | None = None  # [R, room, input_dim], of which `used` are filled

    @property
    def used(self) -> int:
        return self.caches[0].used

    def remember(self, x: Tensor) -> None:
        """Store inputs before they are read, if they may have to be read again."""
        if self.room is None:
            return
        if self.inputs is None:
            self.inputs = x.new_empty(x.size(0), self.room, x.size(2))
        self.inputs[:, self.used : self.used + x.size(1)] = x

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> TransformerCache:
        other = TransformerCache(pick(self.caches, rows), self.room)
        other.inputs = None if self.inputs is None else self.inputs.index_select(0, rows)
        return other


class TransformerStack(nn.Module):
    """Blocks of masked self-attention (Vaswani et al. 2017; as a language model: Radford et al. 2018), or of another
    causal `mixer`.

    With a `room`, the context is bounded: when it is full, its last half is read again from position 0 on. So every
    token sees between half the room and all of it, at positions seen in training. This happens at fixed steps, so one
    call with many steps equals many calls. If no mixer's state grows and positions are relative, nothing is read again.
    `residual`: see SkipConnections; or `reversible`, with which memory in training does not grow
    with `layers` (Gomez et al. 2017, see `run_reversible`). `bias`: whether blocks' linear maps have one (Chowdhery et
    al. 2022 leave it out).
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
        scale_embeddings: bool = True,
        mixer: Annotated[Choice, MIXERS] = "attention",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.enter = TransformerInput(input_dim, dim, position, dim // heads, dropout, scale_embeddings)
        self.reversible, residual = residual == "reversible", block_residual(residual, norm, norm_kind)
        kinds = {"norm_kind": norm_kind, "residual": residual}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, 0, score, activation, norm, dropout, mixer, causal=True, **kinds)
            for _ in range(layers)
        )
        for part in () if bias else self.blocks.modules():
            if isinstance(part, nn.Linear):
                part.register_parameter("bias", None)
        check_positions(self.blocks, self.enter.position)
        self.ways = SkipConnections(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim = dim

    def begin(self, room: int | None = None) -> TransformerCache:
        if room is not None and room < 2:
            raise SeqloomError(f"a Transformer needs room for 2 tokens at least, here {room}")
        return TransformerCache(tuple(block.mix.begin(room) for block in self.blocks), None if self.unbounded else room)  # pyright: ignore

    @property
    def unbounded(self) -> bool:
        absolute = type(self.enter.position).forward is not Position.forward  # seen only up to the training length
        return not absolute and all(block.mix.bounded for block in self.blocks)  # pyright: ignore

    def forward(
        self, x: Tensor, state: TransformerCache | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, TransformerCache | None]:
        """`lengths` [R]: the number of real positions, for a norm across the batch."""
        if state is None or state.room is None:
            return self._read(x, state, lengths), state
        outputs, room = [], state.room
        while x.size(1):
            if state.used == room:
                state = self._reread_half(state, room)
            now, x = x.split([n := min(room - state.used, x.size(1)), x.size(1) - n], 1)
            state.remember(now)
            outputs.append(self._read(now, state))
        return torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0], state

    def _reread_half(self, full: TransformerCache, room: int) -> TransformerCache:
        assert full.inputs is not None
        half, fresh = full.inputs[:, room - room // 2 :], self.begin(room)
        fresh.remember(half)
        self._read(half, fresh)
        return fresh

    def _read(self, x: Tensor, cache: TransformerCache | None, lengths: Tensor | None = None) -> Tensor:
        visible, x = Visibility(causal=True, lengths=lengths), self.enter(x, 0 if cache is None else cache.used)
        if cache is None and self.reversible:
            return self.norm(run_reversible(self.blocks, x, visible, self.enter.position), lengths)
        states = None if cache is None else cache.caches
        if self.reversible:
            x, states = run_with_states(self.blocks, x, visible, states or (), self.enter.position)
            x = self.norm(x, lengths)
        else:
            _, x, states = run_blocks(self, x, visible, self.enter.position, states)
        if cache is not None:
            cache.caches = tuple(states)
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
