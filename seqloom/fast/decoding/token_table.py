"""`Seq2Seq` for decoding with a small vocabulary: the input of the decoder's first block is looked up by token."""

from __future__ import annotations

from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.data.batches.collate import Padded
from seqloom.fast.decoding import transformer
from seqloom.fast.decoding.first_block import MAX_TOKENS, first_block_table
from seqloom.fast.decoding.transformer import BeamMemory
from seqloom.fast.linear import cpu
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.positions.absolute import Sinusoidal
from seqloom.parts.positions.position import NoPosition
from seqloom.parts.state import Decoding


def supported(self: Seq2Seq, source: Padded, *, width: int = 1, room: int | None = None) -> bool:
    """For positions that are defined without end."""
    small = isinstance(self.decoder, TransformerDecoder) and self.target.weight.size(0) <= MAX_TOKENS
    return small and type(self.decoder.enter.position) in (NoPosition, Sinusoidal)  # pyright: ignore


@twin_of(Seq2Seq.start, supported)
def start(self: Seq2Seq, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
    state, decoder = plain_of(Seq2Seq.start)(self, source, width=width, room=room), self.decoder
    if not isinstance(state.context, BeamMemory) or state.context.fused_step is None:
        return state
    table, project = self.target.weight, decoder.blocks[0].mix.project  # pyright: ignore
    if not cpu.supported(table, project.weight):  # pyright: ignore
        return state
    first_block = first_block_table(decoder, table, decoder.enter, state.context.fused_step.blocks[0], project)  # pyright: ignore
    return Decoding(state.context._replace(first_block=first_block), state.rows)


def begun_here(self: Seq2Seq, tokens: Tensor, state: Decoding) -> bool:
    return type(state.context) is BeamMemory and state.context.first_block is not None


@twin_of(Seq2Seq.step, begun_here, own_state=True)
def step(self: Seq2Seq, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
    states, state = transformer.forward(self.decoder, tokens, state)  # pyright: ignore
    return self.output(dropout(states, self.dropout, self.training)), state
