"""The recurrent decoder that looks back at the source at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.errors import SeqloomError, known
from seqloom.fast.decoding.recurrent_step import LeanStack
from seqloom.fast.linear.cpu import Bare, Packed, Steps, product, ready_part
from seqloom.fast.lstm.input_feeding_cpu import Begun, Weights, able, fed_steps
from seqloom.models.decoders.decoders import Bridge, Dims, spread
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attention import Attention, Memory
from seqloom.parts.attention.scores import SCORES, Dot, General, Scaled
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.cells import CELLS, LstmCell
from seqloom.parts.recurrent.recurrent import Recurrent, StackState
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import See, keep


class Read(NamedTuple):
    memory: Memory
    lengths: Tensor | None
    lean: Lean | None = None  # for steps where nobody watches


class Lean(NamedTuple):
    """What a step of decoding takes in the place of modules."""

    stack: LeanStack
    join: Packed | Bare  # the share of `combine` that h has

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Lean:
        return self


class Written(NamedTuple):
    stack: StackState
    fed: Tensor | None  # [R, dim], the last attentive state h̃, where it is fed back


class AttentiveDecoder(nn.Module):
    """A recurrent decoder with attention over the encoder's states, by any score.

    `query="previous"`: the last state s_{t−1} asks, and the context c_t enters the cell with the token: s_t =
    cell([y_{t−1}; c_t], s_{t−1}) (Bahdanau et al. 2015, section 3.1).
    `query="current"`: the cell steps first and its new state h_t asks (Luong et al. 2015, section 3.1).
    In both, the output is h̃_t = tanh(W [c_t; h_t]). `feeding=True` (with `current`) gives h̃_{t−1} to the cell beside
    the token (section 3.3); without it there is no loop over time: the fused RNN runs over all T, then T queries ask
    at once. `value_dim` projects what is read before it is mixed; 0 mixes the encoder's states as they are.
    `start` says how the first state is made (see Bridge).
    """

    def __init__(
        self,
        input_dim: int,
        memory_dim: int,
        final_dims: Dims,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int = 512,
        layers: int = 1,
        dropout: float = 0.0,
        score: Annotated[Choice, SCORES] = "general",
        query: str = "current",
        feeding: bool = False,
        value_dim: int = 0,
        start: str = "last",
    ) -> None:
        super().__init__()
        self.query = known(query, ("previous", "current"), "query")
        if feeding and query == "previous":
            raise SeqloomError(
                "feeding goes with query=current: with query=previous the context enters the cell anyway"
            )
        self.feeding = feeding
        self.attention = Attention(dim, memory_dim, score, value_dim)
        extra = self.attention.dim if query == "previous" else dim * feeding
        self.recurrent = Recurrent(input_dim + extra, dim, cell, layers, 1, dropout)
        self.bridge = Bridge(start, memory_dim, final_dims, self.recurrent.state_dims)
        self.combine = nn.Linear(self.attention.dim + dim, dim, bias=False)
        self.dim = dim

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        keys, values = self.attention.remember(encoded.states)
        if self.query == "current":
            # W_c Σ a_s v_s = Σ a_s W_c v_s: the context's share of `combine` depends on the source alone, so it is
            # done once per sentence, and attention then mixes it ready-made.
            values = product(values, self.combine.weight[:, : self.attention.dim])
        stack = spread(self.bridge(encoded), width)
        fed = stack[-1][0].new_zeros(stack[-1][0].size(0), self.dim) if self.feeding else None
        lean = None if room is None else self._lean(stack[0][0].size(0))
        return Decoding(Read((keys, values), encoded.lengths, lean), Written(stack, fed))

    def _lean(self, rows: int) -> Lean | None:
        stack = LeanStack.of(self.recurrent, rows) if self.query == "current" else None
        if stack is None:
            return None
        share = self.combine.weight[:, self.attention.dim :].contiguous()
        return Lean(stack, ready_part(self.combine, "share", share, None, rows))

    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]"""
        read, written = state
        see = See(lengths=read.lengths)
        if read.lean is not None and x.size(1) == 1 and not read.lean.stack.watched:
            states, rows = self._leanly(x[:, 0], read, see, written)
        elif self.query == "previous":
            states, rows = self._ask_first(x, read.memory, see, written)
        elif self.feeding:
            states, rows = self._feed(x, read.memory, see, written)
        else:
            h, stack = self.recurrent(x, See(causal=True), written.stack)
            states, rows = self._joined(self.attention(h, read.memory, see), h), Written(stack, None)
        return states, Decoding(read, rows)

    def _leanly(self, x: Tensor, read: Read, see: See, written: Written) -> tuple[Tensor, Written]:
        """One step where `current` asks, without modules: [R, input_dim] -> [R, 1, dim]."""
        assert read.lean is not None
        stack = read.lean.stack(x if written.fed is None else torch.cat([x, written.fed], -1), written.stack)
        h = stack[-1][0]
        context = self.attention(h[:, None], read.memory, see)[:, 0]
        joined = read.lean.join.onto(h, context).tanh_()
        return joined[:, None], Written(stack, None if written.fed is None else joined)

    def _ask_first(self, x: Tensor, memory: Memory, see: See, written: Written) -> tuple[Tensor, Written]:
        gates = self._gates(x)
        stack, contexts, states = written.stack, [], []
        for t in range(x.size(1)):
            context = self.attention(stack[-1][0][:, None], memory, see).squeeze(1)
            stack = self._step(gates(t, context), stack)
            contexts.append(context)
            states.append(stack[-1][0])
        joined = torch.cat([torch.stack(contexts, 1), torch.stack(states, 1)], -1)
        return self.combine(joined).tanh(), Written(stack, None)

    def _feed(self, x: Tensor, memory: Memory, see: See, written: Written) -> tuple[Tensor, Written]:
        stack, fed, states = written.stack, written.fed, []
        assert fed is not None
        if (weights := self._weights(x, memory)) is not None:
            [(h, c)], score = stack, self.attention.score
            real = None if see.lengths is None else keep(see.lengths, memory[0].size(1))[:, None]
            keys = memory[0] * score.scale if isinstance(score, Scaled) else memory[0]
            every, (h, c, fed) = fed_steps(x, Begun(h, c, fed), (keys, memory[1]), real, weights)
            return every, Written(((h, c),), fed)
        step, join = self._stepping(x), Steps(self.combine.weight[:, self.attention.dim :])
        for t in range(x.size(1)):
            stack = step(t, fed, stack)
            h = stack[-1][0]
            context = self.attention(h[:, None], memory, see).squeeze(1)
            fed = (context + join(h)).tanh()
            states.append(fed)
        return torch.stack(states, 1), Written(stack, fed)

    def _weights(self, x: Tensor, memory: Memory) -> Weights | None:
        """For all steps by one function: in training, where nobody watches and the score is a product."""
        layer, attention = self.recurrent.layers[0], self.attention
        cell: Cell = layer.cells[0]  # pyright: ignore
        usual = type(cell) is LstmCell and not cell.plain and type(attention.score) in (Dot, General, Scaled)
        alone = len(self.recurrent.layers) == 1 and layer.probe is None and attention.probe is None
        if not usual or not alone or memory[0].size(0) != x.size(0):
            return None
        weights = Weights(cell.weight, cell.recurrent, cell.bias, self.combine.weight[:, attention.dim :])
        return weights if able(x, weights) else None

    def _stepping(self, x: Tensor) -> Callable[[int, Tensor, StackState], StackState]:
        """(t, h̃, state) -> state. In training the products with h̃ and with h are one, where the gates are a sum."""
        layer = self.recurrent.layers[0]
        cell: Cell = layer.cells[0]  # pyright: ignore
        alone = len(self.recurrent.layers) == 1 and layer.probe is None and torch.is_grad_enabled()
        if alone and cell.affine and not cell.plain and type(cell).act is not Cell.act:
            tokens, rest = cell.weight.split([x.size(-1), cell.input_dim - x.size(-1)], 1)
            both = Steps(torch.cat([cell.recurrent, rest], 1))
            if both.delayed:
                shares = product(x, tokens, cell.bias).unbind(1)
                return lambda t, fed, stack: (cell.act(shares[t] + both(torch.cat([stack[0][0], fed], -1)), stack[0]),)
        gates = self._gates(x)
        return lambda t, fed, stack: self._step(gates(t, fed), stack)

    def _joined(self, context: Tensor, h: Tensor) -> Tensor:
        """tanh(W [c; h]) of a context that has been through its share of W already."""
        return (context + product(h, self.combine.weight[:, self.attention.dim :])).tanh()

    def _gates(self, x: Tensor) -> Callable[[int, Tensor], Tensor]:
        """How step t and what enters beside its token become the first cell's gates: the tokens' share is done for all
        steps at once, where the cell's input is W x + b."""
        first: Cell = self.recurrent.layers[0].cells[0]  # pyright: ignore
        if not first.affine:
            return lambda t, beside: first.input(torch.cat([x[:, t], beside], -1))
        tokens, rest = first.weight.split([x.size(-1), first.input_dim - x.size(-1)], 1)
        gates, onto = product(x, tokens, first.bias).unbind(1), Steps(rest)
        return lambda t, beside: gates[t] + onto(beside)

    def _step(self, gates: Tensor, stack: StackState) -> StackState:
        """One step of every layer, the first from its gates."""
        states = []
        for depth, (layer, state) in enumerate(zip(self.recurrent.layers, stack, strict=True)):
            cell: Cell = layer.cells[0]  # pyright: ignore
            if depth:
                gates = cell.input(dropout(states[-1][0], self.recurrent.dropout, self.training))
            state, active = cell(gates, state)
            if layer.probe:
                layer.probe(torch.stack(active, 1)[:, None].detach())  # pyright: ignore
            states.append(state)
        return tuple(states)
