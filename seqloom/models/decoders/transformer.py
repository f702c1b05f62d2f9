"""The Transformer decoder: masked self-attention and cross-attention, in training and step by step."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from torch import Tensor, cat, compiler, nn

from seqloom.build import Choice, build
from seqloom.fast.decoding.first_block import FirstBlockTable, first_block_table
from seqloom.fast.decoding.transformer_step import (
    BroadcastCache,
    FoldedMemory,
    ProjectedInput,
    TransformerStep,
    folding_supported,
    has_bias,
    rotates,
)
from seqloom.models.decoders.bridge import Dims
from seqloom.models.encoders.transformer import TransformerInput
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.kv_cache import BeamCache
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.efficient_attention import check_positions
from seqloom.parts.mixers.mixer_table import CROSSES, MIXERS, SelfAttention
from seqloom.parts.positions.absolute import Sinusoidal
from seqloom.parts.positions.position import AttentionPosition, NoPosition, SideBySide
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.state import Decoding, State
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import SkipConnections
from seqloom.parts.visibility import Visibility, keep


class SourceMemory(NamedTuple):
    """What a Transformer decoder attends to: keys and values of the source for every layer, and how many are real."""

    memories: tuple[Memory, ...]
    lengths: Tensor | None
    real: Tensor | None = None  # [B, 1, 1, S], added to scores: −inf at padded positions
    fused_step: TransformerStep | None = None  # the fused blocks, for steps without probes
    folded_memories: tuple[FoldedMemory, ...] | None = None  # the memories with weights folded in, where that is faster
    first_block: FirstBlockTable | None = None  # if there is one, steps get tokens [R, 1]


class TransformerDecoder(nn.Module):
    """Blocks of masked self-attention, or of another `mixer`, cross-attention and feed-forward (Vaswani et al. 2017,
    section 3.1).

    `scale_embeddings` and `embedding_norm`: see TransformerInput. `residual`: see SkipConnections.
    """

    def __init__(
        self,
        input_dim: int,
        memory_dim: int,
        final_dims: Dims,
        dim: int = 256,
        layers: int = 3,
        heads: int = 4,
        hidden: int = 1024,
        position: Annotated[Choice, POSITIONS] = "sinusoidal",
        score: Annotated[Choice, SCORES] = "scaled",
        norm: str = "before",
        norm_kind: Annotated[Choice, NORMS] = "layer",
        residual: str = "add",
        activation: str = "relu",
        dropout: float = 0.1,
        scale_embeddings: bool = True,
        embedding_norm: bool = False,
        mixer: Annotated[Choice, MIXERS] = "attention",
        cross: Annotated[Choice, CROSSES] = "attention",
    ) -> None:
        super().__init__()
        self.enter = TransformerInput(input_dim, dim, position, dim // heads, dropout, scale_embeddings, embedding_norm)
        kinds = {"norm_kind": norm_kind, "residual": residual, "cross": cross}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, memory_dim, score, activation, norm, dropout, mixer, causal=True, **kinds)
            for _ in range(layers)
        )
        check_positions(self.blocks, self.enter.position)
        # Whether the hypotheses of a sentence can share a BeamCache.
        self.branches = all(isinstance(block.mix, SelfAttention) for block in self.blocks)
        self.ways = SkipConnections(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim, self.reads = dim, layers

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None, table: Tensor | None = None) -> Decoding:
        """`table`: the embeddings of all tokens, if steps may get tokens instead of vectors."""
        views = encoded.views or (encoded.states,) * len(self.blocks)
        memories = tuple(block.cross.project_memory(x) for block, x in zip(self.blocks, views, strict=True))  # pyright: ignore
        if not self.branches or (room is None and width == 1) or width > BeamCache.max_width:
            states = tuple(block.mix.begin(room) for block in self.blocks)  # pyright: ignore
            return Decoding(SourceMemory(memories, encoded.lengths), states)
        real = None if encoded.lengths is None else padding_bias(encoded.lengths, encoded.states)
        blocks, rows = list(self.blocks), encoded.states.size(0) * width
        fold = folding_supported(blocks, encoded.states, width)  # pyright: ignore
        fused_step = TransformerStep.of(blocks, rows, fold)  # pyright: ignore
        folded = None
        if fused_step is not None and fold:
            pairs = zip(blocks, memories, strict=True)
            folded = tuple(FoldedMemory.of(block.cross, memory, real) for block, memory in pairs)  # pyright: ignore
        elif fused_step is not None:  # contiguous, since every step reads them
            memories = tuple((keys.contiguous(), values.contiguous()) for keys, values in memories)
        source = SourceMemory(
            memories, encoded.lengths, real, fused_step, folded, self._first_block_table(table, fused_step)
        )
        return Decoding(source, BeamCache(len(self.blocks), room, width))

    def _first_block_table(self, table: Tensor | None, fused_step: TransformerStep | None) -> FirstBlockTable | None:
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in self.enter.modules())
        known = type(self.enter.position) in (NoPosition, Sinusoidal)  # defined at any position
        if table is None or fused_step is None or hooked or not known:
            return None
        return first_block_table(self, table, self.enter, fused_step.blocks[0], self.blocks[0].mix.project)  # pyright: ignore

    def forward(self, x: Tensor, state: Decoding, lengths: Tensor | None = None) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim], or tokens [R, T] if `first_block` is set -> [R, T, dim]. `lengths` [R]: the number of
        real positions, for a norm across the batch."""
        source, rows = state
        if isinstance(rows, BeamCache):
            steps = [self._step_side_by_side(step, source, rows) for step in x.split(1, 1)] if x.size(1) > 1 else []
            return cat(steps, 1) if steps else self._step_side_by_side(x, source, rows), state
        x = self.enter(x, rows[0].used)
        x, rows = self._run_blocks(x, Visibility(causal=True, lengths=lengths), rows, self.enter.position, source)
        return x, Decoding(source, rows)

    def _step_side_by_side(self, x: Tensor, source: SourceMemory, rows: BeamCache) -> Tensor:
        """One step of all hypotheses, [R, 1, input_dim] or [R, 1]: those of a sentence stand side by side on the time
        axis, so that self-attention is one matmul over the keys that they share."""
        position, offset, inputs, qkv = self.enter.position, rows.steps, x, None
        if source.first_block is None:
            x = self.enter(x, offset)
        else:
            x, qkv = source.first_block(x[:, 0], offset)
        x = x.view(-1, rows.width, self.dim)
        bias, caches = rows.add_step(x), rows.caches
        if source.fused_step is None or source.fused_step.has_probes:
            y, _ = self._run_blocks(x, Visibility(bias=bias), caches, SideBySide(position, offset), source)
            return y.view(-1, 1, self.dim)
        if one := offset == 0 and _all_equal(inputs.view(x.size(0), rows.width, -1)):
            x, bias, caches = x[:, :1], None, [BroadcastCache(cache, rows.width) for cache in caches]
            qkv = None if qkv is None else qkv[:: rows.width]
        turns = SideBySide(position.prepare(x[:1, :1], offset), offset) if rotates(position) else None
        if has_bias(position):  # the same in all layers, so computed once
            heads, slots = source.fused_step.blocks[0].heads, rows.steps * rows.width
            position_bias = SideBySide(position, offset).bias(heads, 1, slots, dtype=x.dtype)
            bias = Visibility(bias=bias).with_bias(position_bias).bias
        x = x.reshape(-1, self.dim)
        hidden = x if qkv is None else ProjectedInput(x, qkv)
        for block, cache, memory in zip(
            source.fused_step.blocks, caches, source.folded_memories or source.memories, strict=True
        ):
            hidden = block(hidden, cache, turns, bias, memory, source.real)
        y = self.norm(hidden)[:, None]
        return y.repeat_interleave(rows.width, 0) if one else y

    def _run_blocks(
        self,
        x: Tensor,
        visible: Visibility,
        states: tuple[State, ...],
        position: AttentionPosition,
        source: SourceMemory,
    ) -> tuple[Tensor, tuple[State, ...]]:
        of_source = Visibility(lengths=source.lengths)
        read = [(memory, of_source) for memory in source.memories]
        _, x, states = run_blocks(self, x, visible, position, states, read)
        return x, states


def _all_equal(x: Tensor) -> bool:
    """Whether the hypotheses of each sentence, [B, width, input_dim] or tokens [B, width, 1], are equal, as at the
    first step: then one is computed for all. False where checking is not cheap."""
    cheap = x.size(1) > 1 and x.device.type == "cpu" and not compiler.is_compiling()
    return cheap and bool((x == x[:, :1]).all())


def padding_bias(lengths: Tensor, states: Tensor) -> Tensor:
    """[B] and [B, S, D] -> [B, 1, 1, S]: 0 at real positions, −inf at padded ones."""
    real = keep(lengths, states.size(1))[:, None, None]
    return states.new_zeros(()).masked_fill(~real, float("-inf"))
