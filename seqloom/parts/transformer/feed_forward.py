"""The position-wise feed-forward network of a Transformer block."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.errors import SeqloomError, known
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.linear import Linear


class FeedForward(nn.Module):
    """W₂ act(W₁ x + b₁) + b₂ at every position by itself (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, dim: int, hidden: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if hidden < 1:
            raise SeqloomError(f"hidden of a Transformer's feed-forward layers is at least 1, here {hidden}")
        self.up = Linear(dim, hidden)
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.down = Linear(hidden, dim)
        self.dropout = dropout
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    @accelerated
    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> the same; in training with dropout between the two linear maps."""
        hidden = self.activation(self.up(x))
        return self.down(dropout(hidden, self.dropout, self.training))
