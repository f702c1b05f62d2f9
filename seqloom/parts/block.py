"""Blocks and stacks of the Transformer: a mixer and a feed-forward network, each with its norm and its way around."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from seqloom.errors import known
from seqloom.parts.attention import Memory, MultiHead
from seqloom.parts.choose import Choice
from seqloom.parts.dropout import dropout, onto
from seqloom.parts.position import Turns
from seqloom.parts.product import Linear
from seqloom.parts.score import SCORES
from seqloom.parts.see import See
from seqloom.parts.state import Cache


class Relu(nn.ReLU):
    """max(0, x) (Nair & Hinton 2010)."""


class Gelu(nn.GELU):
    """x·Φ(x) (Hendrycks & Gimpel 2016)."""


class Silu(nn.SiLU):
    """x·σ(x) (Elfwing et al. 2018; "swish" of Ramachandran et al. 2017)."""


class Sigmoid(nn.Sigmoid):
    """1 / (1 + e^−x) (Rumelhart et al. 1986)."""


class Tanh(nn.Tanh):
    """(e^x − e^−x) / (e^x + e^−x) (LeCun et al. 1998, Efficient BackProp, section 4.4)."""


class NoActivation(nn.Identity):
    """x itself: layers without one between them are a single matrix product (Minsky & Papert 1969)."""


ACTIVATIONS = {
    "relu": Relu,
    "gelu": Gelu,
    "silu": Silu,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "none": NoActivation,
}


class FeedForward(nn.Module):
    """W₂ act(W₁ x + b₁) + b₂ at every place by itself (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, dim: int, hidden: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.up = Linear(dim, hidden)
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.down = Linear(hidden, dim)
        self.dropout = dropout
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(dropout(self.activation(self.up(x)), self.dropout, self.training))


class Around(nn.Module):
    """The residual way around a part, with the norm before it (Xiong et al. 2020) or after it (Vaswani et al. 2017)."""

    def __init__(self, dim: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.before = known(norm, ("before", "after"), "norm") == "before"
        self.dropout = dropout

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.before else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        x = onto(x, y, self.dropout, self.training)
        return x if self.before else self.norm(x)


class Block(nn.Module):
    """Self-attention, cross-attention if `memory_dim` says what is read, feed-forward."""

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        memory_dim: int = 0,
        score: Annotated[Choice, SCORES] = "scaled",
        activation: str = "relu",
        norm: str = "before",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.mix = MultiHead(dim, heads, score=score)
        self.mix_around = Around(dim, norm, dropout)
        if memory_dim:
            self.cross = MultiHead(dim, heads, key_dim=memory_dim, score=score)
            self.cross_around = Around(dim, norm, dropout)
        self.feed = FeedForward(dim, hidden, activation, dropout)
        self.feed_around = Around(dim, norm, dropout)

    def forward(
        self,
        x: Tensor,
        see: See,
        state: Cache | None = None,
        position: Turns | None = None,
        memory: tuple[Memory, See] | None = None,
    ) -> tuple[Tensor, Cache | None]:
        """[R, T, dim] -> the same; `memory` is what was read and how much of it may be seen."""
        y, state = self.mix(self.mix_around.enter(x), see, state, position)
        x = self.mix_around.leave(x, y)
        if memory is not None:
            x = self.cross_around.leave(x, self.cross.read(self.cross_around.enter(x), *memory))
        return self.feed_around.leave(x, self.feed(self.feed_around.enter(x))), state
