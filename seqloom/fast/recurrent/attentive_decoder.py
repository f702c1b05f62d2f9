"""The recurrent decoder with attention: what it can do once per sentence or for all steps at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.decoding.recurrent_step import RecurrentStackStep
from seqloom.fast.linear.cpu import PackedLinear, PlainLinear, StepwiseLinear, prepare_weight
from seqloom.fast.recurrent import input_feeding_cpu
from seqloom.fast.recurrent.input_feeding_cpu import InputFeedingState, Weights, input_feeding_steps
from seqloom.fast.recurrent.pointwise import act_of, is_affine
from seqloom.models.decoders.attentive import AttentiveDecoder, DecoderState
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.scores import Dot, General, Scaled
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.linear import linear
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.cells import LstmCell
from seqloom.parts.recurrent.layers import StackState
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import Visibility, keep


class DecodingStep(NamedTuple):
    """A fused step of decoding, used instead of the modules."""

    stack: RecurrentStackStep
    join: PackedLinear | PlainLinear  # the part of `combine` that multiplies h

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> DecodingStep:
        return self


class PreparedMemory(NamedTuple):
    """What `begin` has made; that of the textbook has no `decoding_step`."""

    memory: Memory  # with query=current the values are already multiplied by the context's part of `combine`
    lengths: Tensor | None
    decoding_step: DecodingStep | None  # for steps without probes


def _begins(self: AttentiveDecoder, encoded: Encoded, width: int = 1, room: int | None = None) -> bool:
    return True


@twin_of(AttentiveDecoder.begin, _begins, compiles=True)
def begin(self: AttentiveDecoder, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
    source, rows = plain_of(AttentiveDecoder.begin)(self, encoded, width, room)
    (keys, values), step = source.memory, None
    if self.query == "current":
        # W_c Σ a_s v_s = Σ a_s W_c v_s: the context's part of `combine` depends on the source alone, so it is applied
        # to the values once per sentence.
        values = linear(values, self.combine.weight[:, : self.attention.dim])
        step = None if room is None else _decoding_step(self, rows.stack[0][0].size(0))
    return Decoding(PreparedMemory((keys, values), source.lengths, step), rows)


def _decoding_step(self: AttentiveDecoder, rows: int) -> DecodingStep | None:
    stack = RecurrentStackStep.of(self.recurrent, rows)
    if stack is None:
        return None
    of_h = self.combine.weight[:, self.attention.dim :].contiguous()
    return DecodingStep(stack, prepare_weight(self.combine, "share", of_h, None, rows))


def _began(self: AttentiveDecoder, x: Tensor, state: Decoding) -> bool:
    return isinstance(state.context, PreparedMemory)


@twin_of(AttentiveDecoder.forward, _began, own_state=True)
def forward(self: AttentiveDecoder, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
    """Reports to probes, if any, as the plain loops do."""
    source, written = state
    step = source.decoding_step
    if step is not None and x.size(1) == 1 and not step.stack.has_probes:
        states, rows = _fused_step(self, x[:, 0], source, written)
    elif self.query == "previous":
        states, rows = _query_previous(self, x, source, written)
    elif self.input_feeding:
        states, rows = _input_feeding(self, x, source, written)
    else:
        h, stack = self.recurrent(x, Visibility(causal=True), written.stack)
        context = self.attention(h, source.memory, Visibility(lengths=source.lengths))
        states = (context + linear(h, self.combine.weight[:, self.attention.dim :])).tanh()
        rows = DecoderState(stack, None)
    return states, Decoding(source, rows)


def _fused_step(
    self: AttentiveDecoder, x: Tensor, source: PreparedMemory, written: DecoderState
) -> tuple[Tensor, DecoderState]:
    """One step with query=current, without modules: [R, input_dim] -> [R, 1, dim]."""
    assert source.decoding_step is not None
    stack = source.decoding_step.stack(
        x if written.attentional is None else torch.cat([x, written.attentional], -1), written.stack
    )
    h = stack[-1][0]
    context = self.attention(h[:, None], source.memory, Visibility(lengths=source.lengths))[:, 0]
    combined = source.decoding_step.join.with_residual(h, context).tanh_()
    return combined[:, None], DecoderState(stack, None if written.attentional is None else combined)


def _query_previous(
    self: AttentiveDecoder, x: Tensor, source: PreparedMemory, written: DecoderState
) -> tuple[Tensor, DecoderState]:
    gates, visible = _make_gates(self, x), Visibility(lengths=source.lengths)
    stack, contexts, states = written.stack, [], []
    for t in range(x.size(1)):
        context = self.attention(stack[-1][0][:, None], source.memory, visible).squeeze(1)
        stack = _step(self, gates(t, context), stack)
        contexts.append(context)
        states.append(stack[-1][0])
    combined = torch.cat([torch.stack(contexts, 1), torch.stack(states, 1)], -1)
    return self.combine(combined).tanh(), DecoderState(stack, None)


def _input_feeding(
    self: AttentiveDecoder, x: Tensor, source: PreparedMemory, written: DecoderState
) -> tuple[Tensor, DecoderState]:
    (keys, values), visible = source.memory, Visibility(lengths=source.lengths)
    stack, attentional, states = written.stack, written.attentional, []
    assert attentional is not None
    if (weights := _weights(self, x, keys)) is not None:
        [(h, c)], score = stack, self.attention.score
        real = None if source.lengths is None else keep(source.lengths, keys.size(1))[:, None]
        keys = keys * score.scale if isinstance(score, Scaled) else keys
        outputs, (h, c, attentional) = input_feeding_steps(
            x, InputFeedingState(h, c, attentional), (keys, values), real, weights
        )
        return outputs, DecoderState(((h, c),), attentional)
    step, join = _make_step(self, x), StepwiseLinear(self.combine.weight[:, self.attention.dim :])
    for t in range(x.size(1)):
        stack = step(t, attentional, stack)
        h = stack[-1][0]
        context = self.attention(h[:, None], source.memory, visible).squeeze(1)
        attentional = (context + join(h)).tanh()
        states.append(attentional)
    return torch.stack(states, 1), DecoderState(stack, attentional)


def _weights(self: AttentiveDecoder, x: Tensor, keys: Tensor) -> Weights | None:
    """The weights for all steps in one function: for one LSTM layer with a dot-product score, without probes."""
    layer, attention, cell = self.recurrent.layers[0], self.attention, _first_cell(self)
    lstm_with_dot = type(cell) is LstmCell and act_of(cell) and type(attention.score) in (Dot, General, Scaled)
    alone = len(self.recurrent.layers) == 1 and layer.probe is None and attention.probe is None
    if not lstm_with_dot or not alone or keys.size(0) != x.size(0):
        return None
    weights = Weights(cell.weight, cell.recurrent, cell.bias, self.combine.weight[:, attention.dim :])
    return weights if input_feeding_cpu.supported(x, weights) else None


def _make_step(self: AttentiveDecoder, x: Tensor) -> Callable[[int, Tensor, StackState], StackState]:
    """(t, h̃, state) -> state. In training h̃ and h go through one matmul, if the gates are W x + U h + b."""
    layer, cell = self.recurrent.layers[0], _first_cell(self)
    alone = len(self.recurrent.layers) == 1 and layer.probe is None and torch.is_grad_enabled()
    if alone and (act := act_of(cell)) is not None:
        tokens, rest = cell.weight.split([x.size(-1), cell.input_dim - x.size(-1)], 1)
        both = StepwiseLinear(torch.cat([cell.recurrent, rest], 1))
        if both.deferred:
            shares = linear(x, tokens, cell.bias).unbind(1)
            return lambda t, attentional, stack: (
                act(cell, shares[t] + both(torch.cat([stack[0][0], attentional], -1)), stack[0]),
            )
    gates = _make_gates(self, x)
    return lambda t, attentional, stack: _step(self, gates(t, attentional), stack)


def _make_gates(self: AttentiveDecoder, x: Tensor) -> Callable[[int, Tensor], Tensor]:
    """(t, second input) -> the first cell's gates, for its input [token; second input]. Where this is W x + b, the
    tokens' part is computed for all steps at once."""
    first = _first_cell(self)
    if not is_affine(first):
        return lambda t, extra: first.input(torch.cat([x[:, t], extra], -1))
    tokens, rest = first.weight.split([x.size(-1), first.input_dim - x.size(-1)], 1)
    gates, rest_linear = linear(x, tokens, first.bias).unbind(1), StepwiseLinear(rest)
    return lambda t, extra: gates[t] + rest_linear(extra)


def _step(self: AttentiveDecoder, gates: Tensor, stack: StackState) -> StackState:
    """One step of every layer, the first from its gates."""
    states = []
    for depth, (layer, state) in enumerate(zip(self.recurrent.layers, stack, strict=True)):
        cell: Any = layer.cells[0]  # pyright: ignore
        if depth:
            gates = cell.input(dropout(states[-1][0], self.recurrent.dropout, self.training))
        state, active = cell(gates, state)
        if layer.probe:
            layer.probe(torch.stack(active, 1)[:, None].detach())  # pyright: ignore
        states.append(state)
    return tuple(states)


def _first_cell(self: AttentiveDecoder) -> Cell:
    return self.recurrent.layers[0].cells[0]  # pyright: ignore
