"""The head of a classifier or regressor: from a vector to a score for each label."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from seqloom.errors import known
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.layers.dropout import dropout


class Head(nn.Module):
    """[..., dim] -> [..., size]: Linear layers with an activation between (Rumelhart et al. 1986), dropout before each.

    `hidden`: the widths between, 0 for none. Without an activation ("none") all layers together are one linear map.
    """

    def __init__(
        self, dim: int, size: int, hidden: int | list[int] = 0, activation: str = "relu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        widths = [dim, *([hidden] if isinstance(hidden, int) else hidden), size]
        widths = [width for width in widths if width]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.dropout = dropout
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)  # pyright: ignore[reportArgumentType]
            nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = self.activation(x) if number else x
            x = layer(dropout(x, self.dropout, self.training))
        return x
