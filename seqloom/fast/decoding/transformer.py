"""`TransformerDecoder` for decoding: the hypotheses of a sentence share a `BeamCache`, and a step without probes runs
prepared weights with few operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.decoding.beam_cache import BeamCache, SideBySide
from seqloom.fast.decoding.first_block import FirstBlockTable
from seqloom.fast.decoding.transformer_step import (
    BroadcastCache,
    FoldedMemory,
    ProjectedInput,
    TransformerStep,
    folding_supported,
    has_bias,
    rotates,
)
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.mixers.mixer_table import SelfAttention
from seqloom.parts.state import Decoding
from seqloom.parts.transformer.block import run_blocks
from seqloom.parts.visibility import Visibility, keep


class BeamMemory(NamedTuple):
    """The source of a state with a `BeamCache`: what a `SourceMemory` has, prepared for many steps."""

    memories: tuple[Memory, ...]
    lengths: Tensor | None
    real: Tensor | None  # [B, 1, 1, S], added to scores: −inf at padded positions
    fused_step: TransformerStep | None  # for steps without probes
    folded_memories: tuple[FoldedMemory, ...] | None  # the memories with weights folded in, where that is faster
    first_block: FirstBlockTable | None = None  # if there is one, steps get tokens [R, T]


def supported(self: TransformerDecoder, encoded: Encoded, width: int = 1, room: int | None = None) -> bool:
    """Not in training, which asks for neither a width nor room; nor for mixers with states of another kind."""
    decodes = (room is not None or width > 1) and width <= BeamCache.max_width
    return decodes and all(isinstance(block.mix, SelfAttention) for block in self.blocks)


@twin_of(TransformerDecoder.begin, supported)
def begin(self: TransformerDecoder, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
    (memories, lengths), _ = plain_of(TransformerDecoder.begin)(self, encoded)
    real = None if lengths is None else padding_bias(lengths, encoded.states)
    blocks, folded = list(self.blocks), None
    fold = folding_supported(blocks, encoded.states, width)  # pyright: ignore
    fused_step = TransformerStep.of(blocks, encoded.states.size(0) * width, fold)  # pyright: ignore
    if fused_step is not None and fold:
        pairs = zip(blocks, memories, strict=True)
        folded = tuple(FoldedMemory.of(block.cross, memory, real) for block, memory in pairs)  # pyright: ignore
    elif fused_step is not None:  # contiguous, since every step reads them
        memories = tuple((keys.contiguous(), values.contiguous()) for keys, values in memories)
    return Decoding(BeamMemory(memories, lengths, real, fused_step, folded), BeamCache(len(blocks), room, width))


def begun_here(self: TransformerDecoder, x: Tensor, state: Decoding, lengths: Tensor | None = None) -> bool:
    return type(state.rows) is BeamCache


@twin_of(TransformerDecoder.forward, begun_here, own_state=True)
def forward(
    self: TransformerDecoder, x: Tensor, state: Decoding, lengths: Tensor | None = None
) -> tuple[Tensor, Decoding]:
    """[R, T, input_dim], or tokens [R, T] if there is a `first_block`."""
    source, rows = state
    if x.size(1) == 1:
        return _step(self, x, source, rows), state
    return torch.cat([_step(self, one, source, rows) for one in x.split(1, 1)], 1), state


def _step(decoder: TransformerDecoder, x: Tensor, source: BeamMemory, rows: BeamCache) -> Tensor:
    """One step of all hypotheses, [R, 1, input_dim] or [R, 1]: those of a sentence stand side by side on the time
    axis, so that self-attention is one matmul over the keys that they share."""
    position, offset, inputs, qkv = decoder.enter.position, rows.steps, x, None
    if source.first_block is None:
        x = decoder.enter(x, offset)
    else:
        x, qkv = source.first_block(x[:, 0], offset)
    x = x.view(-1, rows.width, decoder.dim)
    bias, caches = rows.add_step(x), rows.caches
    if source.fused_step is None or source.fused_step.has_probes:
        memories = [(memory, Visibility(lengths=source.lengths)) for memory in source.memories]
        y = run_blocks(decoder, x, Visibility(bias=bias), SideBySide(position, offset), caches, memories)[1]
        return y.view(-1, 1, decoder.dim)
    if one := offset == 0 and _all_equal(inputs.view(x.size(0), rows.width, -1)):
        x, bias, caches = x[:, :1], None, [BroadcastCache(cache, rows.width) for cache in caches]
        qkv = None if qkv is None else qkv[:: rows.width]
    turns = SideBySide(position.prepare(x[:1, :1], offset), offset) if rotates(position) else None
    if has_bias(position):  # the same in all layers, so computed once
        heads, slots = source.fused_step.blocks[0].heads, rows.steps * rows.width
        position_bias = SideBySide(position, offset).bias(heads, 1, slots, dtype=x.dtype)
        bias = Visibility(bias=bias).with_bias(position_bias).bias
    x = x.reshape(-1, decoder.dim)
    hidden, memories = x if qkv is None else ProjectedInput(x, qkv), source.folded_memories or source.memories
    for block, cache, memory in zip(source.fused_step.blocks, caches, memories, strict=True):
        hidden = block(hidden, cache, turns, bias, memory, source.real)
    y = decoder.norm(hidden)[:, None]
    return y.repeat_interleave(rows.width, 0) if one else y


def _all_equal(x: Tensor) -> bool:
    """Whether the hypotheses of each sentence, [B, width, input_dim] or tokens [B, width, 1], are equal, as at the
    first step: then one is computed for all. False where checking is not cheap."""
    cheap = x.size(1) > 1 and x.device.type == "cpu" and not torch.compiler.is_compiling()
    return cheap and bool((x == x[:, :1]).all())


def padding_bias(lengths: Tensor, states: Tensor) -> Tensor:
    """[B] and [B, S, D] -> [B, 1, 1, S]: 0 at real positions, −inf at padded ones."""
    real = keep(lengths, states.size(1))[:, None, None]
    return states.new_zeros(()).masked_fill(~real, float("-inf"))
