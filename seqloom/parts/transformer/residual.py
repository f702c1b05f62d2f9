"""Residual connections with their norms: around one sub-layer, and across a stack of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, cat, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.errors import known
from seqloom.parts.layers.dropout import add_dropout, dropout
from seqloom.parts.layers.norm import NORMS

RESIDUALS = ("add", "dense", "none")


class Residual(nn.Module):
    """The residual connection around a sub-layer f: x + f(norm(x)) (Xiong et al. 2020), or norm(x + f(x)) with norm
    `after` (Vaswani et al. 2017).

    With a `residual` other than "add", x itself is not added; see `SkipConnections`. `lengths` [B]: how many positions
    of x are real, for a norm over the batch.
    """

    def __init__(self, dim: int, norm: str, dropout: float, norm_kind: Choice = "layer", residual: str = "add") -> None:
        super().__init__()
        self.norm = build(NORMS, norm_kind, dim=dim)
        self.pre_norm = known(norm, ("before", "after"), "norm") == "before"
        self.adds = known(residual, RESIDUALS, "residual") == "add"
        self.dropout = dropout

    def sublayer_input(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[R, T, dim] -> what the sub-layer reads."""
        return self.norm(x, lengths) if self.pre_norm else x

    @accelerated
    def add(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x and the sub-layer's output y, [R, T, dim] each -> x + dropout(y), or its norm."""
        y = add_dropout(x, y, self.dropout, self.training) if self.adds else dropout(y, self.dropout, self.training)
        return y if self.pre_norm else self.norm(y, lengths)


class SkipConnections(nn.Module):
    """What a block reads of the outputs before it in a stack of `layers` blocks.

    `add`: the output of the block below, which is already a sum of all before it (He et al. 2016,
    https://arxiv.org/abs/1512.03385). `dense`: W_ℓ [x₀; x₁; …; x_ℓ], the stack's input and all outputs below
    concatenated (Huang et al. 2017, https://arxiv.org/abs/1608.06993) and projected to one width, as their 1 × 1
    convolutions do; also after the last block. `none`: the output of the block below, without any skip connection.
    """

    def __init__(self, dim: int, layers: int, residual: str) -> None:
        super().__init__()
        dense = known(residual, RESIDUALS, "residual") == "dense"
        self.join = nn.ModuleList(nn.Linear((n + 2) * dim, dim, bias=False) for n in range(layers * dense))
        for linear in self.join:
            nn.init.xavier_uniform_(linear.weight)  # pyright: ignore[reportArgumentType]

    def forward(self, outputs: Sequence[Tensor]) -> Tensor:
        """The stack's input and the outputs so far, [R, T, dim] each -> what the next block reads."""
        return self.join[len(outputs) - 2](cat(list(outputs), -1)) if self.join and len(outputs) > 1 else outputs[-1]
