"""The recurrent decoder with attention: at every step it attends to the encoder's states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.errors import SeqloomError, known
from seqloom.fast.decoding.recurrent_step import RecurrentStackStep
from seqloom.fast.linear.cpu import PackedLinear, PlainLinear, StepwiseLinear, prepare_weight
from seqloom.fast.lstm.input_feeding_cpu import InputFeedingState, Weights, input_feeding_steps, supported
from seqloom.models.decoders.bridge import Bridge, Dims, repeat_rows
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.scores import SCORES, Dot, General, Scaled
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.linear import linear
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.cells import CELLS, LstmCell
from seqloom.parts.recurrent.layers import Recurrent, StackState
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import Visibility, keep


class SourceMemory(NamedTuple):
    memory: Memory
    lengths: Tensor | None
    decoding_step: DecodingStep | None = None  # for steps without probes


class DecodingStep(NamedTuple):
    """A fused step of decoding, used instead of the modules."""

    stack: RecurrentStackStep
    join: PackedLinear | PlainLinear  # the part of `combine` that multiplies h

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> DecodingStep:
        return self


class DecoderState(NamedTuple):
    stack: StackState
    attentional: Tensor | None  # [R, dim], the last attentional vector h̃, with input feeding


class AttentiveDecoder(nn.Module):
    """A recurrent decoder with attention over the encoder's states, by any score.

    `query="previous"`: the query is the last state s_{t−1}, and the context c_t enters the cell with the token: s_t =
    cell([y_{t−1}; c_t], s_{t−1}) (Bahdanau et al. 2015, section 3.1).
    `query="current"`: the cell steps first, and the query is its new state h_t (Luong et al. 2015, section 3.1).
    In both, the output is h̃_t = tanh(W [c_t; h_t]). `input_feeding=True` (with `current`) gives h̃_{t−1} to the cell
    beside the token (section 3.3); without it there is no loop over time: the fused RNN runs over all T, then all T
    queries attend at once. `value_dim` projects the values; 0 takes the encoder's states as they are.
    `initial_state`: how the first state is made (see Bridge).
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
        input_feeding: bool = False,
        value_dim: int = 0,
        initial_state: str = "last",
    ) -> None:
        super().__init__()
        self.query = known(query, ("previous", "current"), "query")
        if input_feeding and query == "previous":
            raise SeqloomError(
                "input_feeding goes with query=current: with query=previous the context enters the cell anyway"
            )
        self.input_feeding = input_feeding
        self.attention = Attention(dim, memory_dim, score, value_dim)
        extra = self.attention.dim if query == "previous" else dim * input_feeding
        self.recurrent = Recurrent(input_dim + extra, dim, cell, layers, 1, dropout)
        self.bridge = Bridge(initial_state, memory_dim, final_dims, self.recurrent.state_dims)
        self.combine = nn.Linear(self.attention.dim + dim, dim, bias=False)
        self.dim = dim

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        keys, values = self.attention.project_memory(encoded.states)
        if self.query == "current":
            # W_c Σ a_s v_s = Σ a_s W_c v_s: the context's part of `combine` depends on the source alone, so it is
            # applied to the values once per sentence.
            values = linear(values, self.combine.weight[:, : self.attention.dim])
        stack = repeat_rows(self.bridge(encoded), width)
        attentional = stack[-1][0].new_zeros(stack[-1][0].size(0), self.dim) if self.input_feeding else None
        step = None if room is None else self._decoding_step(stack[0][0].size(0))
        return Decoding(SourceMemory((keys, values), encoded.lengths, step), DecoderState(stack, attentional))

    def _decoding_step(self, rows: int) -> DecodingStep | None:
        stack = RecurrentStackStep.of(self.recurrent, rows) if self.query == "current" else None
        if stack is None:
            return None
        of_h = self.combine.weight[:, self.attention.dim :].contiguous()
        return DecodingStep(stack, prepare_weight(self.combine, "share", of_h, None, rows))

    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]"""
        source, written = state
        visible = Visibility(lengths=source.lengths)
        if source.decoding_step is not None and x.size(1) == 1 and not source.decoding_step.stack.has_probes:
            states, rows = self._fused_step(x[:, 0], source, visible, written)
        elif self.query == "previous":
            states, rows = self._query_previous(x, source.memory, visible, written)
        elif self.input_feeding:
            states, rows = self._input_feeding(x, source.memory, visible, written)
        else:
            h, stack = self.recurrent(x, Visibility(causal=True), written.stack)
            context = self.attention(h, source.memory, visible)  # its part of `combine` is already applied
            states = (context + linear(h, self.combine.weight[:, self.attention.dim :])).tanh()
            rows = DecoderState(stack, None)
        return states, Decoding(source, rows)

    def _fused_step(
        self, x: Tensor, source: SourceMemory, visible: Visibility, written: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """One step with query=current, without modules: [R, input_dim] -> [R, 1, dim]."""
        assert source.decoding_step is not None
        stack = source.decoding_step.stack(
            x if written.attentional is None else torch.cat([x, written.attentional], -1), written.stack
        )
        h = stack[-1][0]
        context = self.attention(h[:, None], source.memory, visible)[:, 0]
        combined = source.decoding_step.join.with_residual(h, context).tanh_()
        return combined[:, None], DecoderState(stack, None if written.attentional is None else combined)

    def _query_previous(
        self, x: Tensor, memory: Memory, visible: Visibility, written: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        gates = self._make_gates(x)
        stack, contexts, states = written.stack, [], []
        for t in range(x.size(1)):
            context = self.attention(stack[-1][0][:, None], memory, visible).squeeze(1)
            stack = self._step(gates(t, context), stack)
            contexts.append(context)
            states.append(stack[-1][0])
        combined = torch.cat([torch.stack(contexts, 1), torch.stack(states, 1)], -1)
        return self.combine(combined).tanh(), DecoderState(stack, None)

    def _input_feeding(
        self, x: Tensor, memory: Memory, visible: Visibility, written: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        stack, attentional, states = written.stack, written.attentional, []
        assert attentional is not None
        if (weights := self._weights(x, memory)) is not None:
            [(h, c)], score = stack, self.attention.score
            real = None if visible.lengths is None else keep(visible.lengths, memory[0].size(1))[:, None]
            keys = memory[0] * score.scale if isinstance(score, Scaled) else memory[0]
            outputs, (h, c, attentional) = input_feeding_steps(
                x, InputFeedingState(h, c, attentional), (keys, memory[1]), real, weights
            )
            return outputs, DecoderState(((h, c),), attentional)
        step, join = self._make_step(x), StepwiseLinear(self.combine.weight[:, self.attention.dim :])
        for t in range(x.size(1)):
            stack = step(t, attentional, stack)
            h = stack[-1][0]
            context = self.attention(h[:, None], memory, visible).squeeze(1)
            attentional = (context + join(h)).tanh()
            states.append(attentional)
        return torch.stack(states, 1), DecoderState(stack, attentional)

    def _weights(self, x: Tensor, memory: Memory) -> Weights | None:
        """The weights for the fused steps: for one LSTM layer with a dot-product score, without probes."""
        layer, attention = self.recurrent.layers[0], self.attention
        cell: Cell = layer.cells[0]  # pyright: ignore
        lstm_with_dot = type(cell) is LstmCell and not cell.stepwise and type(attention.score) in (Dot, General, Scaled)
        alone = len(self.recurrent.layers) == 1 and layer.probe is None and attention.probe is None
        if not lstm_with_dot or not alone or memory[0].size(0) != x.size(0):
            return None
        weights = Weights(cell.weight, cell.recurrent, cell.bias, self.combine.weight[:, attention.dim :])
        return weights if supported(x, weights) else None

    def _make_step(self, x: Tensor) -> Callable[[int, Tensor, StackState], StackState]:
        """(t, h̃, state) -> state. In training h̃ and h go through one matmul, if the gates are W x + U h + b."""
        layer = self.recurrent.layers[0]
        cell: Cell = layer.cells[0]  # pyright: ignore
        alone = len(self.recurrent.layers) == 1 and layer.probe is None and torch.is_grad_enabled()
        if alone and cell.affine and not cell.stepwise and type(cell).act is not Cell.act:
            tokens, rest = cell.weight.split([x.size(-1), cell.input_dim - x.size(-1)], 1)
            both = StepwiseLinear(torch.cat([cell.recurrent, rest], 1))
            if both.deferred:
                shares = linear(x, tokens, cell.bias).unbind(1)
                return lambda t, attentional, stack: (
                    cell.act(shares[t] + both(torch.cat([stack[0][0], attentional], -1)), stack[0]),
                )
        gates = self._make_gates(x)
        return lambda t, attentional, stack: self._step(gates(t, attentional), stack)

    def _make_gates(self, x: Tensor) -> Callable[[int, Tensor], Tensor]:
        """(t, second input) -> the first cell's gates, for its input [token; second input]. Where this is W x + b, the
        tokens' part is computed for all steps at once."""
        first: Cell = self.recurrent.layers[0].cells[0]  # pyright: ignore
        if not first.affine:
            return lambda t, extra: first.input(torch.cat([x[:, t], extra], -1))
        tokens, rest = first.weight.split([x.size(-1), first.input_dim - x.size(-1)], 1)
        gates, rest_linear = linear(x, tokens, first.bias).unbind(1), StepwiseLinear(rest)
        return lambda t, extra: gates[t] + rest_linear(extra)

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
