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
from seqloom.parts.attention.attention import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.head_projections import agree
from seqloom.parts.mixers.mixers import CROSSES, MIXERS, SelfAttention
from seqloom.parts.positions.positions import POSITIONS, Abreast, NoPosition, Sinusoidal, Turns
from seqloom.parts.state import Branches, Decoding, State
from seqloom.parts.transformer.block import Block, Ways, through
from seqloom.parts.visibility import See, keep


class SourceMemory(NamedTuple):
    """What a Transformer decoder attends to: keys and values of the source for every layer, and how many are real."""

    memories: tuple[Memory, ...]
    lengths: Tensor | None
    real: Tensor | None = None  # [B, 1, 1, S], added to scores: −inf at padded places
    lean: TransformerStep | None = None  # the blocks as steps run them without probes
    folded: tuple[FoldedMemory, ...] | None = None  # the memories as they take them, where that is less work
    entrance: FirstBlockTable | None = None  # steps are given tokens, [R, 1], where there is one


class TransformerDecoder(nn.Module):
    """Blocks of masked self-attention, or of another `mixer`, cross-attention and feed-forward (Vaswani et al. 2017,
    section 3.1).

    `scale_embeddings` and `embedding_norm`: see TransformerInput. `residual`: see Ways.
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
        agree(self.blocks, self.enter.position)
        # Whether the hypotheses of a sentence can share keys.
        self.branches = all(isinstance(block.mix, SelfAttention) for block in self.blocks)
        self.ways = Ways(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim, self.reads = dim, layers

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None, table: Tensor | None = None) -> Decoding:
        """`table`: the embeddings of all tokens, where steps may look up tokens themselves."""
        views = encoded.views or (encoded.states,) * len(self.blocks)
        memories = tuple(block.cross.remember(x) for block, x in zip(self.blocks, views, strict=True))  # pyright: ignore
        if not self.branches or (room is None and width == 1) or width > Branches.widest:
            states = tuple(block.mix.begin(room) for block in self.blocks)  # pyright: ignore
            return Decoding(SourceMemory(memories, encoded.lengths), states)
        real = None if encoded.lengths is None else padding_bias(encoded.lengths, encoded.states)
        blocks, rows = list(self.blocks), encoded.states.size(0) * width
        fold = folding_supported(blocks, encoded.states, width)  # pyright: ignore
        lean = TransformerStep.of(blocks, rows, fold)  # pyright: ignore
        folded = None
        if lean is not None and fold:
            pairs = zip(blocks, memories, strict=True)
            folded = tuple(FoldedMemory.of(block.cross, memory, real) for block, memory in pairs)  # pyright: ignore
        elif lean is not None:  # in one block each, since every step reads them
            memories = tuple((keys.contiguous(), values.contiguous()) for keys, values in memories)
        read = SourceMemory(memories, encoded.lengths, real, lean, folded, self._entrance(table, lean))
        return Decoding(read, Branches(len(self.blocks), room, width))

    def _entrance(self, table: Tensor | None, lean: TransformerStep | None) -> FirstBlockTable | None:
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in self.enter.modules())
        known = type(self.enter.position) in (NoPosition, Sinusoidal)  # of any length, and without bounds
        if table is None or lean is None or hooked or not known:
            return None
        return first_block_table(self, table, self.enter, lean.blocks[0], self.blocks[0].mix.project)  # pyright: ignore

    def forward(self, x: Tensor, state: Decoding, lengths: Tensor | None = None) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim], or tokens [R, T] where there is an entrance for them -> [R, T, dim]. `lengths` [R]: how
        many places are real, for a norm that looks across the batch."""
        read, rows = state
        if isinstance(rows, Branches):
            steps = [self._step_side_by_side(step, read, rows) for step in x.split(1, 1)] if x.size(1) > 1 else []
            return cat(steps, 1) if steps else self._step_side_by_side(x, read, rows), state
        x = self.enter(x, rows[0].used)
        x, rows = self._run_blocks(x, See(causal=True, lengths=lengths), rows, self.enter.position, read)
        return x, Decoding(read, rows)

    def _step_side_by_side(self, x: Tensor, read: SourceMemory, rows: Branches) -> Tensor:
        """One step of all hypotheses, [R, 1, input_dim] or [R, 1]: those of a sentence stand side by side on the time
        axis, so that their self-attention is one matmul over the keys that they share."""
        position, place, given, three = self.enter.position, rows.steps, x, None
        if read.entrance is None:
            x = self.enter(x, place)
        else:
            x, three = read.entrance(x[:, 0], place)
        x = x.view(-1, rows.width, self.dim)
        seen, caches = rows.grow(x), rows.caches
        if read.lean is None or read.lean.has_probes:
            y, _ = self._run_blocks(x, See(bias=seen), caches, Abreast(position, place), read)
            return y.view(-1, 1, self.dim)
        if one := place == 0 and _all_equal(given.view(x.size(0), rows.width, -1)):
            x, seen, caches = x[:, :1], None, [BroadcastCache(cache, rows.width) for cache in caches]
            three = None if three is None else three[:: rows.width]
        turns = Abreast(position.over(x[:1, :1], place), place) if rotates(position) else None
        if has_bias(position):  # the same in all layers, so computed once
            heads, slots = read.lean.blocks[0].heads, rows.steps * rows.width
            seen = See(bias=seen).plus(Abreast(position, place).bias(heads, 1, slots, dtype=x.dtype)).bias
        x = x.reshape(-1, self.dim)
        given = x if three is None else ProjectedInput(x, three)
        for block, cache, memory in zip(read.lean.blocks, caches, read.folded or read.memories, strict=True):
            given = block(given, cache, turns, seen, memory, read.real)
        y = self.norm(given)[:, None]
        return y.repeat_interleave(rows.width, 0) if one else y

    def _run_blocks(
        self, x: Tensor, see: See, states: tuple[State, ...], position: Turns, read: SourceMemory
    ) -> tuple[Tensor, tuple[State, ...]]:
        seen = See(lengths=read.lengths)
        _, x, states = through(self, x, see, position, states, [(memory, seen) for memory in read.memories])
        return x, states


def _all_equal(x: Tensor) -> bool:
    """Whether the hypotheses of each sentence, [B, width, input_dim] or tokens [B, width, 1], are still equal, as at
    the first step: then one is computed for all. Only where checking is cheap."""
    cheap = x.size(1) > 1 and x.device.type == "cpu" and not compiler.is_compiling()
    return cheap and bool((x == x[:, :1]).all())


def padding_bias(lengths: Tensor, states: Tensor) -> Tensor:
    """[B] and [B, S, D] -> [B, 1, 1, S]: 0 at real places, −inf at padded ones."""
    real = keep(lengths, states.size(1))[:, None, None]
    return states.new_zeros(()).masked_fill(~real, float("-inf"))
