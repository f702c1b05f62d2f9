"""The recurrent decoder with attention: at every step it attends to the encoder's states."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.errors import SeqloomError, known
from seqloom.models.decoders.bridge import Bridge, Dims, repeat_rows
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent, StackState
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import Visibility

CAUSAL = Visibility(causal=True)


class SourceMemory(NamedTuple):
    memory: Memory
    lengths: Tensor | None


class DecoderState(NamedTuple):
    stack: StackState
    attentional: Tensor | None  # [R, dim], the last attentional vector h̃, with input feeding


class AttentiveDecoder(nn.Module):
    """A recurrent decoder with attention over the encoder's states, by any score.

    `query="previous"`: the query is the last state s_{t−1}, and the context c_t enters the cell with the token: s_t =
    cell([y_{t−1}; c_t], s_{t−1}) (Bahdanau et al. 2015, section 3.1).
    `query="current"`: the cell steps first, and the query is its new state h_t (Luong et al. 2015, section 3.1).
    In both, the output is h̃_t = tanh(W [c_t; h_t]). `input_feeding=True` (with `current`) gives h̃_{t−1} to the cell
    beside the token (section 3.3); without it no h_t depends on a context: the cell reads all T tokens, then all T
    queries attend. `value_dim` projects the values; 0 takes the encoder's states as they are.
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

    @accelerated
    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        """The state before the first token, of `width` hypotheses a sentence."""
        memory = self.attention.project_memory(encoded.states)
        stack = repeat_rows(self.bridge(encoded), width)
        h = stack[-1][0]
        return Decoding(
            SourceMemory(memory, encoded.lengths),
            DecoderState(stack, h.new_zeros(h.size(0), self.dim) if self.input_feeding else None),
        )

    @accelerated
    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]"""
        if self.query == "previous":
            states, written = self._bahdanau(x, state.context, state.rows)
        elif self.input_feeding:
            states, written = self._luong_with_input_feeding(x, state.context, state.rows)
        else:
            states, written = self._luong(x, state.context, state.rows)
        return states, Decoding(state.context, written)

    def _bahdanau(self, x: Tensor, source: SourceMemory, written: DecoderState) -> tuple[Tensor, DecoderState]:
        """c_t = attention(s_{t−1}); s_t = cell([y_{t−1}; c_t], s_{t−1}); h̃_t = tanh(W [c_t; s_t])"""
        stack, outputs = written.stack, []
        for token in x.split(1, 1):
            c = self.attention(stack[-1][0][:, None], source.memory, Visibility(lengths=source.lengths))
            s, stack = self.recurrent(torch.cat([token, c], -1), CAUSAL, stack)
            outputs.append(self.combine(torch.cat([c, s], -1)).tanh())
        return torch.cat(outputs, 1), DecoderState(stack, None)

    def _luong(self, x: Tensor, source: SourceMemory, written: DecoderState) -> tuple[Tensor, DecoderState]:
        """h_t = cell(y_{t−1}, h_{t−1}); c_t = attention(h_t); h̃_t = tanh(W [c_t; h_t])"""
        h, stack = self.recurrent(x, CAUSAL, written.stack)
        c = self.attention(h, source.memory, Visibility(lengths=source.lengths))
        return self.combine(torch.cat([c, h], -1)).tanh(), DecoderState(stack, None)

    def _luong_with_input_feeding(
        self, x: Tensor, source: SourceMemory, written: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """The same with h_t = cell([y_{t−1}; h̃_{t−1}], h_{t−1})"""
        attentional, outputs = written.attentional, []
        assert attentional is not None
        for token in x.split(1, 1):
            fed = torch.cat([token, attentional[:, None]], -1)
            states, written = self._luong(fed, source, written)
            attentional = states[:, 0]
            outputs.append(attentional)
        return torch.stack(outputs, 1), DecoderState(written.stack, attentional)
