"""One frame for every way to mix a sequence: blocks of a mixer and a feed-forward network, as wide and as large.

A recurrent cell stands where attention stands (`CellMixer`), so that nothing differs but what is compared. The hidden
width of the feed-forward network makes up for mixers of more or fewer parameters: a layer has about 12·dim² in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.fast.attention.mixers import window_gpu
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import SkipConnections
from seqloom.parts.visibility import Visibility, last, mean

HEADS = 4


class CellMixer(nn.Module):
    """A recurrent layer in the place of attention. Positions mean nothing to it."""

    causal = bounded = True

    def __init__(self, dim: int, heads: int, score: Choice, cell: Choice) -> None:
        super().__init__()
        self.recurrent = Recurrent(dim, dim, cell)

    def forward(self, x: Tensor, visible: Visibility, state: Any = None, position: Any = None) -> tuple[Tensor, Any]:
        return self.recurrent(x, visible, state)


@dataclass(frozen=True)
class Kind:
    """A row of the tables: the cell, or the mixer."""

    about: str
    cell: Choice | None = None
    mixer: Choice | None = None
    slow: bool = False  # it steps one by one

    def choice(self, longest: int, layer: int = 0) -> Choice:
        """As `Block` takes it, in that layer; `longest`: the most steps there will be."""
        if self.cell is not None:
            return partial(CellMixer, cell=self.cell)
        assert self.mixer is not None
        grown = {"longest": longest} if _named(self.mixer) == "linformer" else {}
        if isinstance(self.mixer, dict) and "dilation" in self.mixer:
            grown = {"dilation": self.mixer["dilation"] ** layer}
        return {**self.mixer, **grown} if grown else self.mixer  # pyright: ignore

    @property
    def causal(self) -> bool:
        return self.mixer is None or MIXERS[_named(self.mixer)].causal


KINDS = {
    "rnn": Kind("simple RNN", cell="rnn"),
    "rnn-linear": Kind("simple RNN without tanh", cell={"kind": "rnn", "activation": "none"}),
    "gru": Kind("GRU", cell="gru"),
    "lstm": Kind("LSTM", cell="lstm"),
    "mingru": Kind("minGRU", cell="mingru"),
    "minlstm": Kind("minLSTM", cell="minlstm"),
    "attentive-rnn": Kind("RNN with attention over its past", cell="attentive-rnn", slow=True),
    "lstmn": Kind("LSTM with a tape", cell="lstmn", slow=True),
    "dilated": Kind("convolution of 9, dilated", mixer={"kind": "convolution", "width": 9, "dilation": 4}),
    "attention": Kind("attention", mixer="attention"),
    "window": Kind("window of 64", mixer={"kind": "window", "window": 64}),
    "longformer": Kind("window of 64 and one place for all", mixer={"kind": "longformer", "window": 64}),
    "bigbird": Kind("BigBird, blocks of 32", mixer={"kind": "bigbird", "block": 32}),
    "linear": Kind("linear attention", mixer="linear"),
    "performer": Kind("Performer, 128 features", mixer={"kind": "performer", "features": 128}),
    "linformer": Kind("Linformer, rank 32", mixer={"kind": "linformer", "rank": 32}),
    "reformer": Kind("Reformer", mixer="reformer"),
}
# Whatever else the table of mixers has; exact attention in blocks gives the numbers of attention.
KINDS |= {name: Kind(name, mixer=name) for name in MIXERS if name not in KINDS and name != "blockwise"}


class Frame(nn.Module):
    """[B, T, …] -> a score for each of `outputs`, at the last `asked` places, or at none but their summary (0): of a
    cell the last state, else the mean."""

    def __init__(
        self,
        enter: nn.Module,
        outputs: int,
        kind: Kind,
        longest: int,
        dim: int = 128,
        layers: int = 2,
        asked: int = 0,
        position: Choice = "rotary",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.enter, self.asked, self.causal = enter, asked, kind.causal
        self.last = kind.cell is not None
        heads = HEADS if dim % (2 * HEADS) == 0 else 1
        self.position = build(POSITIONS, "none" if self.last else position, dim=dim, head_dim=dim // heads)
        make = partial(Block, dim, heads, _hidden(kind.choice(longest), dim, heads), activation="gelu", dropout=dropout)
        self.blocks = nn.ModuleList(make(mixer=kind.choice(longest, layer)) for layer in range(layers))
        self.ways, self.norm, self.head = SkipConnections(dim, layers, "add"), LayerNorm(dim), nn.Linear(dim, outputs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self.position(self.enter(x))
        # A causal place never sees the padding behind it, and without lengths the kernels are faster.
        visible = Visibility(causal=True) if self.causal and self.asked else Visibility(lengths=lengths)
        x = run_blocks(self, x, visible, self.position)[1]
        if self.asked:
            return self.head(x[:, -self.asked :]).float()
        return self.head(self._summary(x, lengths)).float()

    def _summary(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return (last if self.last else mean)(x, lengths)


def plain_windows() -> Any:
    """Windows by plain kernels: to compile one for every length would take longer than the training."""

    return patch.object(window_gpu, "MIN_LENGTH", 1 << 60)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _named(choice: Choice) -> str:
    return choice if isinstance(choice, str) else choice["kind"]  # pyright: ignore


def _hidden(choice: Choice, dim: int, heads: int) -> int:
    """The width between that brings a layer to 12·dim² parameters, but not below dim: the nearest multiple of 8, as
    GPUs are slow with others."""
    made = parameters(build(MIXERS, choice, dim=dim, heads=heads, score="scaled"))
    return max(dim, 8 * round((12 * dim * dim - made) / (2 * dim * 8)))
