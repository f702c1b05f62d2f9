"""How well queries match keys. A score takes q [..., T, Q] and k [..., S, K] and gives [..., T, S].

Each score splits its work: `keys(k)` is what depends on the key alone, done once per sentence and then kept;
`as_dot(q, k)` gives the same score as a plain product q'·k', if it is one, so that a fused kernel can take over.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.fast.linear.cpu import Linear


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
        return self.joined(q, k) @ self.weight

    def joined(self, q: Tensor, k: Tensor) -> Tensor:
        """tanh(W q + U k + b) of every pair, [..., T, S, hidden]."""
        return torch.tanh(self.query(q)[..., :, None, :] + k[..., None, :, :])


class Network(nn.Module):
    """vᵀ tanh(W₂ tanh(W q + U k + b₁) + b₂): a network of `depth` hidden layers over [q; k] (Bahdanau et al. 2015,
    section 3.1, has one, which is `additive`; a deeper one: Xu et al. 2015, section 3.1.2). U k is what is kept of a
    key; the rest is done for every pair, so it costs T·S·hidden² a layer.

    `hidden` is the width of its layers; 0 takes the query's.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int = 0, depth: int = 2) -> None:
        super().__init__()
        if depth < 2:
            raise SeqloomError(f"score 'network' has a depth of 2 hidden layers at least, here {depth}; see 'additive'")
        self.first = Additive(query_dim, key_dim, hidden)
        hidden = len(self.first.weight)
        self.deeper = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth - 1))

    def keys(self, k: Tensor) -> Tensor:
        return self.first.keys(k)

    def as_dot(self, q: Tensor, k: Tensor) -> None:
        return None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        x = self.first.joined(q, k)
        for linear in self.deeper:
            x = linear(x).tanh()
        return x @ self.first.weight


class Cosine(nn.Module):
    """q·k / (τ |q| |k|) (Graves et al. 2014, equations 5 and 6, where β = 1/τ). k / |k| is what is kept of a key.

    `temperature` is τ, or with `learned` the τ that training starts from.
    """

    def __init__(self, query_dim: int, key_dim: int, temperature: float = 0.1, learned: bool = True) -> None:
        super().__init__()
        _same("cosine", query_dim, key_dim)
        if temperature <= 0:
            raise SeqloomError(f"temperature of score 'cosine' is more than 0, here {temperature}")
        # Its logarithm is what is trained: so τ stays more than 0.
        self.temperature = nn.Parameter(torch.tensor([temperature]).log(), requires_grad=learned)

    def keys(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1) * (-self.temperature).exp(), k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.normalize(q, dim=-1) @ k.mT * (-self.temperature).exp()


class Gaussian(nn.Module):
    """−w² |q − k|² / 2: softmax attention with it is kernel regression with Gaussians 1/w wide (Nadaraya 1964; Watson
    1964). w is trained, from `width` = 1/w on; a width of 0 is d^¼, by which q·k enters as in `scaled`.

    |q − k|² = |q|² + |k|² − 2 q·k, so it is the product of [q, −|q|²/2, 1] and [k, 1, −|k|²/2]. The latter is kept.
    """

    def __init__(self, query_dim: int, key_dim: int, width: float = 0.0) -> None:
        super().__init__()
        _same("gaussian", query_dim, key_dim)
        if width < 0:
            raise SeqloomError(f"width of score 'gaussian' is more than 0, here {width}")
        self.weight = nn.Parameter(torch.tensor([1.0 / (width or query_dim**0.25)]))

    def keys(self, k: Tensor) -> Tensor:
        half = k.square().sum(-1, keepdim=True) / 2
        return torch.cat([k, torch.ones_like(half), -half], -1)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        half = q.square().sum(-1, keepdim=True) / 2
        return torch.cat([q, -half, torch.ones_like(half)], -1) * self.weight.square(), k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self.as_dot(q, k)
        return q @ k.mT


SCORES = {
    "dot": Dot,
    "scaled": Scaled,
    "general": General,
    "additive": Additive,
    "network": Network,
    "cosine": Cosine,
    "gaussian": Gaussian,
}


def _same(name: str, query_dim: int, key_dim: int) -> None:
    if query_dim != key_dim:
        raise SeqloomError(
            f"score {name!r} needs queries and keys of one width, here {query_dim} and {key_dim}; "
            "choose 'general' or 'additive', or change encoder.dim or decoder.dim"
        )
