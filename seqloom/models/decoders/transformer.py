"""The Transformer decoder: masked self-attention and cross-attention, in training and step by step."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.models.decoders.bridge import Dims
from seqloom.models.encoders.transformer import TransformerInput
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.efficient_attention import check_positions
from seqloom.parts.mixers.mixer_table import CROSSES, MIXERS
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.state import Decoding
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import SkipConnections
from seqloom.parts.visibility import Visibility


class SourceMemory(NamedTuple):
    """What a Transformer decoder attends to: keys and values of the source for every layer, and how many are real."""

    memories: tuple[Memory, ...]
    lengths: Tensor | None


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
        self.ways = SkipConnections(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim, self.reads = dim, layers

    @accelerated
    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        """The keys and values of the source, and the state of every block before the first step."""
        views = encoded.views or (encoded.states,) * len(self.blocks)
        memories = tuple(block.cross.project_memory(x) for block, x in zip(self.blocks, views, strict=True))  # pyright: ignore
        states = tuple(block.mix.begin(room) for block in self.blocks)  # pyright: ignore
        return Decoding(SourceMemory(memories, encoded.lengths), states)

    @accelerated
    def forward(self, x: Tensor, state: Decoding, lengths: Tensor | None = None) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]. `lengths` [R]: the number of real positions, for a norm across the
        batch."""
        source, rows = state
        x, of_source = self.enter(x, rows[0].used), Visibility(lengths=source.lengths)
        visible, memories = Visibility(causal=True, lengths=lengths), [(one, of_source) for one in source.memories]
        _, x, rows = run_blocks(self, x, visible, self.enter.position, rows, memories)
        return x, Decoding(source, rows)
