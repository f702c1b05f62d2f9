"""Stacked convolutions, as an encoder and as a stack that reads from left to right.

With one layer it is a window; with more, the receptive `field` grows layer by layer.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import known
from seqloom.models.protocols import Encoded
from seqloom.parts.layers.activations import ACTIVATIONS, NoActivation
from seqloom.parts.layers.norm import NORMS, NoNorm
from seqloom.parts.mixers.convolution import Convolution
from seqloom.parts.state import State
from seqloom.parts.transformer.residual import Residual, SkipConnections
from seqloom.parts.visibility import Visibility, mean

GATE = "gate"  # as an activation: a gated linear unit, half of the features gate the other half


class ConvolutionLayer(nn.Module):
    """A convolution and its activation, with a norm and a residual connection around them."""

    def __init__(
        self,
        dim: int,
        width: int,
        dilation: int,
        activation: str,
        norm: str,
        norm_kind: Choice,
        residual: str,
        dropout: float,
    ) -> None:
        super().__init__()
        known(activation, (GATE, *ACTIVATIONS), "activation")
        self.mix = Convolution(dim, width, dilation, activation == GATE)
        self.activation = NoActivation() if activation == GATE else ACTIVATIONS[activation]()
        self.around = Residual(dim, norm, dropout, norm_kind, residual)

    def forward(self, x: Tensor, visible: Visibility, before: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        y, before = self.mix(self.around.sublayer_input(x, visible.lengths), visible, before)
        return self.around.add(x, self.activation(y), visible.lengths), before


class ConvolutionLayers(nn.Module):
    """[R, T, input_dim] -> [R, T, dim]. The positions that layer ℓ = 0, 1, … sees are dilation^ℓ apart."""

    def __init__(
        self,
        input_dim: int,
        dim: int,
        layers: int,
        width: int,
        dilation: int,
        activation: str,
        norm: str,
        norm_kind: Choice,
        residual: str,
        dropout: float,
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(input_dim, dim) if input_dim != dim else nn.Identity()
        self.layers = nn.ModuleList(
            ConvolutionLayer(dim, width, dilation**n, activation, norm, norm_kind, residual, dropout)
            for n in range(layers)
        )
        self.ways = SkipConnections(dim, layers, residual)
        self.norm = build(NORMS, norm_kind, dim=dim) if norm == "before" else NoNorm(dim)

    @property
    def field(self) -> int:
        """How many positions one position sees, itself among them: 1 + (width − 1) Σ dilation."""
        return 1 + sum(layer.mix.reach for layer in self.layers)  # pyright: ignore

    def run(
        self, x: Tensor, visible: Visibility, state: State = None
    ) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
        """The outputs of all layers, last the output of the stack; and the positions that each layer still needs."""
        outputs, states = [self.enter(x)], []
        for depth, layer in enumerate(self.layers):
            y, before = layer(self.ways(outputs), visible, None if state is None else state[depth])
            outputs.append(y)
            states.append(before)
        return [*outputs[1:], self.norm(self.ways(outputs), visible.lengths)], tuple(states)


class ConvolutionEncoder(nn.Module):
    """Convolutions in which a position sees as many others before it as after (Collobert et al. 2011, section 3.3.2;
    gated: Gehring et al. 2017, section 3.2, https://arxiv.org/abs/1705.03122).

    `width` positions are seen by a layer; `dilation`: each layer's are so many times as far apart as those of the layer
    below (Yu & Koltun 2016). `activation`: `gate`, or one of the feed-forward networks'. `norm`, `norm_kind` and
    `residual`: see Residual and SkipConnections. The summary is the mean over real places.
    """

    def __init__(
        self,
        input_dim: int,
        dim: int = 256,
        layers: int = 4,
        width: int = 3,
        dilation: int = 1,
        activation: str = GATE,
        norm: str = "before",
        norm_kind: Annotated[Choice, NORMS] = "layer",
        residual: str = "add",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.convolutions = ConvolutionLayers(
            input_dim, dim, layers, width, dilation, activation, norm, norm_kind, residual, dropout
        )
        self.dim, self.field = dim, self.convolutions.field
        self.final_dims: tuple[tuple[int, ...], ...] = ()

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        (*layers, states), _ = self.convolutions.run(x, Visibility(lengths=lengths))
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=tuple(layers))


class ConvolutionStack(nn.Module):
    """Causal convolutions, as a language model (gated: Dauphin et al. 2017; `dilation`: van den Oord
    et al. 2016, section 2.1; one layer: a window of words, Bengio et al. 2003). Keywords: see ConvolutionEncoder.

    Its state is what each layer still needs, the last (width − 1) · dilation positions of its input.
    """

    carries = True

    def __init__(
        self,
        input_dim: int,
        dim: int = 256,
        layers: int = 4,
        width: int = 3,
        dilation: int = 1,
        activation: str = GATE,
        norm: str = "before",
        norm_kind: Annotated[Choice, NORMS] = "layer",
        residual: str = "add",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.convolutions = ConvolutionLayers(
            input_dim, dim, layers, width, dilation, activation, norm, norm_kind, residual, dropout
        )
        self.dim, self.field = dim, self.convolutions.field

    def begin(self, room: int | None = None) -> State:
        return None

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        outputs, state = self.convolutions.run(x, Visibility(causal=True, lengths=lengths), state)
        return outputs[-1], state
