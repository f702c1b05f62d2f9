"""How well queries match keys. A score takes q [..., T, Q] and k [..., S, K] and gives [..., T, S].

Each score splits its work: `keys(k)` is what depends on the key alone, done once per sentence and then kept;
`as_dot(q, k)` gives the same score as a plain product q'·k', if it is one, so that a fused kernel can take over.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.product import Linear


class Score(Protocol):
    def keys(self, k: Tensor) -> Tensor: ...
    def __call__(self, q: Tensor, k: Tensor) -> Tensor: ...
    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None: ...


class Dot(nn.Module):
    """q·k (Luong et al. 2015, equation 8, `dot`). No parameters; query and key have one width."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        _same("dot", query_dim, key_dim)

    def keys(self, k: Tensor) -> Tensor:
        return k

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT


class Scaled(nn.Module):
    """q·k / √d (Vaswani et al. 2017, equation 1): for unit-variance q and k the score has variance 1."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        _same("scaled", query_dim, key_dim)
        self.scale = query_dim**-0.5

    def keys(self, k: Tensor) -> Tensor:
        return k

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q * self.scale, k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * self.scale) @ k.mT


class General(nn.Module):
    """qᵀ W k (Luong et al. 2015, equation 8, `general`). W k is what is kept of a key."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.project = Linear(key_dim, query_dim, bias=False)

    def keys(self, k: Tensor) -> Tensor:
        return self.project(k)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT


class Additive(nn.Module):
    """vᵀ tanh(W q + U k + b) (Bahdanau et al. 2015, appendix A.1.2). U k is what is kept of a key.

    `hidden` is the width of the small network; 0 takes the query's.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int = 0) -> None:
        super().__init__()
        hidden = hidden or query_dim
        self.query = nn.Linear(query_dim, hidden)
        self.key = nn.Linear(key_dim, hidden, bias=False)
        self.weight = nn.Parameter(torch.empty(hidden).uniform_(-(hidden**-0.5), hidden**-0.5))

    def keys(self, k: Tensor) -> Tensor:
        return self.key(k)

    def as_dot(self, q: Tensor, k: Tensor) -> None:
        return None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(self.query(q)[..., :, None, :] + k[..., None, :, :]) @ self.weight


SCORES = {"dot": Dot, "scaled": Scaled, "general": General, "additive": Additive}


def _same(name: str, query_dim: int, key_dim: int) -> None:
    if query_dim != key_dim:
        raise SeqloomError(
            f"score {name!r} needs queries and keys of one width, here {query_dim} and {key_dim}; "
            "choose 'general' or 'additive', or change encoder.dim or decoder.dim"
        )
