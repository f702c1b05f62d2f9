"""The Transformer encoder, and how embeddings enter a Transformer."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.efficient_attention import check_positions
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import SkipConnections
from seqloom.parts.transformer.reversible import block_residual, run_reversible
from seqloom.parts.visibility import Visibility, mean


class TransformerEncoder(nn.Module):
    """Blocks of self-attention in which every position sees every other (Vaswani et al. 2017, section 3.1), or
    of another `mixer`.

    `norm="before"` ends with one more norm. `residual`: see SkipConnections; or `reversible`, with which memory in
    training does not grow with `layers` (Gomez et al. 2017, see `run_reversible`), and views are of the last of them.
    `scale_embeddings` and `embedding_norm`: see TransformerInput. `global_tokens`: that many trained tokens before the
    others, which see all and are seen by all (Burtsev et al. 2020, memory tokens) but by no decoder. The summary is the
    mean over real positions.
    """

    def __init__(
        self,
        input_dim: int,
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
        global_tokens: int = 0,
    ) -> None:
        super().__init__()
        self.enter = TransformerInput(input_dim, dim, position, dim // heads, dropout, scale_embeddings, embedding_norm)
        self.reversible, residual = residual == "reversible", block_residual(residual, norm, norm_kind)
        kinds = {"norm_kind": norm_kind, "residual": residual}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, 0, score, activation, norm, dropout, mixer, **kinds) for _ in range(layers)
        )
        check_positions(self.blocks, self.enter.position)
        self.ways = SkipConnections(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim = dim
        self.final_dims: tuple[tuple[int, ...], ...] = ()
        self.layer_dims = (dim,) * (1 if self.reversible else layers)
        if global_tokens < 0:
            raise SeqloomError(f"global_tokens of TransformerEncoder is at least 0, here {global_tokens}")
        self.globals = nn.Parameter(torch.randn(global_tokens, dim)) if global_tokens else None

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        x, real, extra = self.enter(x), lengths, 0
        if self.globals is not None:
            extra = self.globals.size(0)
            x = torch.cat([self.globals.to(x.dtype).expand(x.size(0), -1, -1), x], 1)
            real = None if lengths is None else lengths + extra
        visible, position = Visibility(lengths=real), self.enter.position
        if self.reversible:
            x = run_reversible(self.blocks, x, visible, position)
            outputs, states = [x], self.norm(x, real)
        else:
            (_, *outputs), states, _ = run_blocks(self, x, visible, position)
        states, layers = states[:, extra:], tuple(one[:, extra:] for one in outputs)
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=layers)


class TransformerInput(nn.Module):
    """The input of a Transformer: projected embeddings with positions, and dropout. `scale_embeddings`: times √dim
    (Vaswani et al. 2017, section 3.4). `norm`: with a LayerNorm (as in BART: Lewis et al. 2020)."""

    def __init__(
        self,
        input_dim: int,
        dim: int,
        position: Choice,
        head_dim: int,
        dropout: float,
        scale_embeddings: bool = True,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.project = nn.Linear(input_dim, dim, bias=False) if input_dim != dim else nn.Identity()
        self.position = build(POSITIONS, position, dim=dim, head_dim=head_dim)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.scale = dim**0.5 if scale_embeddings else 1.0
        self.dropout = dropout

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        x = self.project(x)
        x = self.norm(self.position(x if self.scale == 1.0 else x * self.scale, offset))
        return dropout(x, self.dropout, self.training)
