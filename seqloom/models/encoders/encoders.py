"""Encoders: [B, S, input_dim] -> Encoded."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.models.encoders.convolutional import ConvolutionEncoder
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.head_projections import agree
from seqloom.parts.mixers.mixers import MIXERS
from seqloom.parts.positions.positions import POSITIONS
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.recurrent import Recurrent
from seqloom.parts.transformer.block import Block, Ways, through
from seqloom.parts.transformer.reversible import inner, read
from seqloom.parts.visibility import See, keep, mean


class RecurrentEncoder(nn.Module):
    """An RNN, GRU or LSTM over the source (Sutskever et al. 2014), in one direction or two (Bahdanau et al. 2015,
    section 3.2).

    The summary is the top layer's last state; with two directions, the last of each. `weight_drop`: see Recurrent.
    """

    def __init__(
        self,
        input_dim: int,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 256,
        layers: int = 1,
        directions: int = 2,
        dropout: float = 0.0,
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.recurrent = Recurrent(input_dim, dim, cell, layers, directions, dropout, weight_drop)
        self.dim, self.directions = self.recurrent.out_dim, directions
        self.final_dims = self.recurrent.state_dims
        self.layer_dims = tuple(dims[0] for dims in self.final_dims)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        outputs, final = self.recurrent.run(x, See(lengths=lengths))
        summary = final[-1][0]
        return Encoded(states=outputs[-1], lengths=lengths, summary=summary, final=final, layers=tuple(outputs))


class TransformerEncoder(nn.Module):
    """Blocks of self-attention in which every place sees every other (Vaswani et al. 2017, section 3.1), or of another
    `mixer`.

    `norm="before"` ends with one more norm. `residual`: see Ways; or `reversible`, with which memory in training does
    not grow with `layers` (Gomez et al. 2017, see `reversible.read`), and views are of the last of them. `scale` and
    `enter_norm`: see Enter. `globals`: that many trained tokens stand before the others, see all and are seen by all
    (Burtsev et al. 2020, memory tokens); no decoder sees them. The summary is the mean over real places.
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
        scale: bool = True,
        enter_norm: bool = False,
        mixer: Annotated[Choice, MIXERS] = "attention",
        globals: int = 0,
    ) -> None:
        super().__init__()
        self.enter = Enter(input_dim, dim, position, dim // heads, dropout, scale, enter_norm)
        self.reversible, residual = residual == "reversible", inner(residual, norm, norm_kind)
        kinds = {"norm_kind": norm_kind, "residual": residual}
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden, 0, score, activation, norm, dropout, mixer, **kinds) for _ in range(layers)
        )
        agree(self.blocks, self.enter.position)
        self.ways = Ways(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)
        self.dim = dim
        self.final_dims: tuple[tuple[int, ...], ...] = ()
        self.layer_dims = (dim,) * (1 if self.reversible else layers)
        if globals < 0:
            raise SeqloomError(f"globals of TransformerEncoder is at least 0, here {globals}")
        self.globals = nn.Parameter(torch.randn(globals, dim)) if globals else None

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        x, real, extra = self.enter(x), lengths, 0
        if self.globals is not None:
            extra = self.globals.size(0)
            x = torch.cat([self.globals.to(x.dtype).expand(x.size(0), -1, -1), x], 1)
            real = None if lengths is None else lengths + extra
        see, position = See(lengths=real), self.enter.position
        if self.reversible:
            x = read(self.blocks, x, see, position)
            said, states = [x], self.norm(x, real)
        else:
            (_, *said), states, _ = through(self, x, see, position)
        states, layers = states[:, extra:], tuple(one[:, extra:] for one in said)
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=layers)


class WindowEncoder(nn.Module):
    """Each place sees its neighbours and no farther: one hidden layer over `window` of them side by side, with zeros
    beyond the ends (Collobert et al. 2011, section 3.3.1). The summary is the mean over real places."""

    def __init__(self, input_dim: int, dim: int = 256, window: int = 5, dropout: float = 0.0) -> None:
        super().__init__()
        if window % 2 == 0:
            raise SeqloomError(f"window is odd, as many places before as after, here {window}")
        self.hidden = nn.Conv1d(input_dim, dim, window, padding=window // 2)
        self.dim, self.dropout, self.field = dim, dropout, window
        self.final_dims: tuple[tuple[int, ...], ...] = ()
        self.layer_dims = (dim,)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        if lengths is not None:
            x = x.masked_fill(~keep(lengths, x.size(1))[:, :, None], 0.0)
        states = dropout(self.hidden(x.mT).mT.tanh(), self.dropout, self.training)
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=(states,))


class Enter(nn.Module):
    """Embeddings on their way into a Transformer, with positions. `scale`: times √dim (Vaswani et al. 2017, section
    3.4). `norm`: with a LayerNorm (as in BART: Lewis et al. 2020)."""

    def __init__(
        self,
        input_dim: int,
        dim: int,
        position: Choice,
        head_dim: int,
        dropout: float,
        scale: bool = True,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.project = nn.Linear(input_dim, dim, bias=False) if input_dim != dim else nn.Identity()
        self.position = build(POSITIONS, position, dim=dim, head_dim=head_dim)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.scale = dim**0.5 if scale else 1.0
        self.dropout = dropout

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        x = self.project(x)
        x = self.norm(self.position(x if self.scale == 1.0 else x * self.scale, offset))
        return dropout(x, self.dropout, self.training)


ENCODERS = {
    "recurrent": RecurrentEncoder,
    "rnn": {"kind": "recurrent", "cell": "rnn"},
    "gru": {"kind": "recurrent", "cell": "gru"},
    "lstm": {"kind": "recurrent", "cell": "lstm"},
    "transformer": TransformerEncoder,
    "convolution": ConvolutionEncoder,
    "window": WindowEncoder,
    "single": {"kind": "window", "window": 1},
}
