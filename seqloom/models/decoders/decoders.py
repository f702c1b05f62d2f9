"""Decoders: what was read and the tokens so far -> the states from which the next tokens are guessed.

A decoder is built knowing `input_dim` (an embedding), `memory_dim` (a state of the encoder) and `final_dims` (the
encoder's last state, layer by layer; empty if it has none). `begin` turns Encoded into a Decoding; `forward` takes any
number of steps from there. Training is a step with T > 1, so training and decoding cannot disagree.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from torch import Tensor, cat, compiler, nn

from seqloom.build import Choice, build
from seqloom.errors import known
from seqloom.fast.decoding.first_block import Entrance, entrance
from seqloom.fast.decoding.transformer_step import Alike, Entered, Folded, Lean, biasing, foldable, moving
from seqloom.models.encoders.encoders import Enter
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attention import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.head_projections import agree
from seqloom.parts.mixers.mixers import CROSSES, MIXERS, SelfAttention
from seqloom.parts.positions.positions import POSITIONS, Abreast, NoPosition, Sinusoidal, Turns
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.recurrent import Recurrent, StackState
from seqloom.parts.state import Branches, Decoding, State
from seqloom.parts.transformer.block import Block, Ways, through
from seqloom.parts.visibility import See, keep, mean

Dims = tuple[tuple[int, ...], ...]


class Bridge(nn.Module):
    """From what was read to a decoder's first state, for every layer and every tensor of its state.

    `last`: the encoder's last state, layer by layer, as it is where the widths agree, else through a linear map.
    `transform`: tanh(W s + b) of it (Bahdanau et al. 2015, appendix A.2.2); an LSTM's c goes through W s + b.
    `pool`: the same of the mean over all states. `zero`: nothing is handed over.
    """

    def __init__(self, how: str, memory_dim: int, final_dims: Dims, state_dims: Dims) -> None:
        super().__init__()
        self.how = known(how, ("last", "transform", "pool", "zero"), "start")
        self.state_dims = state_dims
        self.maps = nn.ModuleDict()
        self.taken: set[tuple[int, int]] = set()  # where the encoder has a tensor for this layer and part
        for layer, dims in enumerate(state_dims):
            for part, dim in enumerate(dims):
                at = _from_the_top(layer, len(state_dims), len(final_dims))
                given = how in ("last", "transform") and at >= 0 and part < len(final_dims[at])
                source = final_dims[at][part] if given else memory_dim
                if given:
                    self.taken.add((layer, part))
                if how != "zero" and not (how == "last" and given and source == dim):
                    self.maps[f"{layer}-{part}"] = nn.Linear(source, dim)

    def forward(self, encoded: Encoded) -> StackState:
        vector = mean(encoded.states, encoded.lengths) if self.how == "pool" else encoded.summary
        return tuple(
            tuple(self._part(encoded, vector, layer, part) for part in range(len(dims)))
            for layer, dims in enumerate(self.state_dims)
        )

    def _part(self, encoded: Encoded, vector: Tensor, layer: int, part: int) -> Tensor:
        if self.how == "zero":
            return vector.new_zeros(vector.size(0), self.state_dims[layer][part])
        if (layer, part) in self.taken:
            vector = encoded.final[_from_the_top(layer, len(self.state_dims), len(encoded.final))][part]
        key = f"{layer}-{part}"
        if key not in self.maps:
            return vector
        mapped = self.maps[key](vector)
        return mapped if self.how == "last" or part == 1 else mapped.tanh()


def _from_the_top(layer: int, layers: int, others: int) -> int:
    """The encoder's layer that stands where `layer` of the decoder does, counted from the top; negative if none."""
    return others - layers + layer


class RecurrentDecoder(nn.Module):
    """A recurrent decoder with a fixed context: all it knows of the source is one vector.

    `context` says how the vector is made (see Bridge); `given` says where it goes: as the `initial` state (Sutskever
    et al. 2014), as `input` at every step, or `both` (Cho et al. 2014, section 2.2). `weight_drop`: see Recurrent.
    """

    def __init__(
        self,
        input_dim: int,
        memory_dim: int,
        final_dims: Dims,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 512,
        layers: int = 1,
        dropout: float = 0.0,
        context: str = "last",
        given: str = "both",
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.feeds = known(given, ("initial", "input", "both"), "given") != "initial"
        self.recurrent = Recurrent(input_dim + memory_dim * self.feeds, dim, cell, layers, 1, dropout, weight_drop)
        self.context = known(context, ("last", "transform", "pool"), "context")
        start = "zero" if given == "input" else context
        self.bridge = Bridge(start, memory_dim, final_dims, self.recurrent.state_dims)
        self.transform = nn.Linear(memory_dim, memory_dim) if self.feeds and context == "transform" else None
        self.dim = self.recurrent.out_dim

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        context = mean(encoded.states, encoded.lengths) if self.context == "pool" else encoded.summary
        if self.transform is not None:
            context = self.transform(context).tanh()
        return Decoding(context, spread(self.bridge(encoded), width))

    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]"""
        if self.feeds:
            context = spread(state.context, x.size(0) // state.context.size(0))
            x = cat([x, context[:, None].expand(-1, x.size(1), -1)], -1)
        states, rows = self.recurrent(x, See(causal=True), state.rows)
        return states, Decoding(state.context, rows)


class ReadSoFar(NamedTuple):
    """What a Transformer decoder has of the source: keys and values for every layer, and how many are real."""

    memories: tuple[Memory, ...]
    lengths: Tensor | None
    real: Tensor | None = None  # [B, 1, 1, S], added to scores: −inf at padded places
    lean: Lean | None = None  # the blocks as steps take them where nobody watches
    folded: tuple[Folded, ...] | None = None  # the memories as they take them, where that is less work
    entrance: Entrance | None = None  # steps are given tokens, [R, 1], where there is one


class TransformerDecoder(nn.Module):
    """Blocks of masked self-attention, or of another `mixer`, cross-attention and feed-forward (Vaswani et al. 2017,
    section 3.1).

    `scale` and `enter_norm`: see Enter. `residual`: see Ways.
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
        scale: bool = True,
        enter_norm: bool = False,
        mixer: Annotated[Choice, MIXERS] = "attention",
        cross: Annotated[Choice, CROSSES] = "attention",
    ) -> None:
        super().__init__()
        self.enter = Enter(input_dim, dim, position, dim // heads, dropout, scale, enter_norm)
        kinds = {"norm_kind": norm_kind, "residual": residual, "cross": cross}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, memory_dim, score, activation, norm, dropout, mixer, causal=True, **kinds)
            for _ in range(layers)
        )
        agree(self.blocks, self.enter.position)
        # Whether hypotheses can share their keys.
        self.branches = all(isinstance(block.mix, SelfAttention) for block in self.blocks)
        self.ways = Ways(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim, self.reads = dim, layers

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None, table: Tensor | None = None) -> Decoding:
        """`table`: the embeddings of all tokens, for whom tokens may be looked up by the steps themselves."""
        views = encoded.views or (encoded.states,) * len(self.blocks)
        memories = tuple(block.cross.remember(x) for block, x in zip(self.blocks, views, strict=True))  # pyright: ignore
        if not self.branches or (room is None and width == 1) or width > Branches.widest:
            states = tuple(block.mix.begin(room) for block in self.blocks)  # pyright: ignore
            return Decoding(ReadSoFar(memories, encoded.lengths), states)
        real = None if encoded.lengths is None else hidden(encoded.lengths, encoded.states)
        blocks, rows = list(self.blocks), encoded.states.size(0) * width
        fold = foldable(blocks, encoded.states, width)  # pyright: ignore
        lean = Lean.of(blocks, rows, fold)  # pyright: ignore
        folded = None
        if lean is not None and fold:
            pairs = zip(blocks, memories, strict=True)
            folded = tuple(Folded.of(block.cross, memory, real) for block, memory in pairs)  # pyright: ignore
        elif lean is not None:  # in one block each, since every step reads them
            memories = tuple((keys.contiguous(), values.contiguous()) for keys, values in memories)
        read = ReadSoFar(memories, encoded.lengths, real, lean, folded, self._entrance(table, lean))
        return Decoding(read, Branches(len(self.blocks), room, width))

    def _entrance(self, table: Tensor | None, lean: Lean | None) -> Entrance | None:
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in self.enter.modules())
        known = type(self.enter.position) in (NoPosition, Sinusoidal)  # of any length, and without bounds
        if table is None or lean is None or hooked or not known:
            return None
        return entrance(self, table, self.enter, lean.blocks[0], self.blocks[0].mix.project)  # pyright: ignore

    def forward(self, x: Tensor, state: Decoding, lengths: Tensor | None = None) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim], or tokens [R, T] where there is an entrance for them -> [R, T, dim]. `lengths` [R]: how
        many places are real, for a norm that looks across the batch."""
        read, rows = state
        if isinstance(rows, Branches):
            steps = [self._abreast(step, read, rows) for step in x.split(1, 1)] if x.size(1) > 1 else []
            return cat(steps, 1) if steps else self._abreast(x, read, rows), state
        x = self.enter(x, rows[0].used)
        x, rows = self._through(x, See(causal=True, lengths=lengths), rows, self.enter.position, read)
        return x, Decoding(read, rows)

    def _abreast(self, x: Tensor, read: ReadSoFar, rows: Branches) -> Tensor:
        """One step of all hypotheses, [R, 1, input_dim] or [R, 1]: those of a sentence stand side by side in the axis
        of time, so that their self-attention is one product over what they share."""
        position, place, given, three = self.enter.position, rows.steps, x, None
        if read.entrance is None:
            x = self.enter(x, place)
        else:
            x, three = read.entrance(x[:, 0], place)
        x = x.view(-1, rows.width, self.dim)
        seen, caches = rows.grow(x), rows.caches
        if read.lean is None or read.lean.watched:
            y, _ = self._through(x, See(bias=seen), caches, Abreast(position, place), read)
            return y.view(-1, 1, self.dim)
        if one := place == 0 and _alike(given.view(x.size(0), rows.width, -1)):
            x, seen, caches = x[:, :1], None, [Alike(cache, rows.width) for cache in caches]
            three = None if three is None else three[:: rows.width]
        turns = Abreast(position.over(x[:1, :1], place), place) if moving(position) else None
        if biasing(position):  # the same in all layers, so once
            heads, slots = read.lean.blocks[0].heads, rows.steps * rows.width
            seen = See(bias=seen).plus(Abreast(position, place).bias(heads, 1, slots, dtype=x.dtype)).bias
        x = x.reshape(-1, self.dim)
        given = x if three is None else Entered(x, three)
        for block, cache, memory in zip(read.lean.blocks, caches, read.folded or read.memories, strict=True):
            given = block(given, cache, turns, seen, memory, read.real)
        y = self.norm(given)[:, None]
        return y.repeat_interleave(rows.width, 0) if one else y

    def _through(
        self, x: Tensor, see: See, states: tuple[State, ...], position: Turns, read: ReadSoFar
    ) -> tuple[Tensor, tuple[State, ...]]:
        seen = See(lengths=read.lengths)
        _, x, states = through(self, x, see, position, states, [(memory, seen) for memory in read.memories])
        return x, states


def _alike(x: Tensor) -> bool:
    """Whether the hypotheses of each sentence, [B, width, input_dim] or tokens [B, width, 1], are one as yet, as all
    are that have said nothing: then one speaks for all. Only where looking is cheap."""
    cheap = x.size(1) > 1 and x.device.type == "cpu" and not compiler.is_compiling()
    return cheap and bool((x == x[:, :1]).all())


def hidden(lengths: Tensor, states: Tensor) -> Tensor:
    """[B] and [B, S, D] -> [B, 1, 1, S]: 0 at real places, −inf at padded ones."""
    real = keep(lengths, states.size(1))[:, None, None]
    return states.new_zeros(()).masked_fill(~real, float("-inf"))


def spread(state: Any, width: int) -> Any:
    """Repeat every row `width` times, in nested tuples too: the same start for each hypothesis of a sentence."""
    if width == 1:
        return state
    if isinstance(state, Tensor):
        return state[:, None].expand(-1, width, *state.shape[1:]).flatten(0, 1)  # exporters know this better
    return tuple(spread(part, width) for part in state)
