"""Attention scores: how well queries match keys. A score takes q [..., T, Q] and k [..., S, K] and gives [..., T, S].

`keys(k)` computes what depends on the key alone; the other methods take its result as k.
`as_dot(q, k)` writes the score as a dot product: it gives q' of q and k' of k with score(q, k) = q'·k', or None where
there are none.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.layers.linear import Linear


class Score(Protocol):
    def keys(self, k: Tensor) -> Tensor: ...
    def __call__(self, q: Tensor, k: Tensor) -> Tensor: ...
    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None: ...


class Dot(nn.Module):
    """q·k (Luong et al. 2015, equation 8, `dot`). No parameters; query and key have one width."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        _check_same_width("dot", query_dim, key_dim)

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
        _check_same_width("scaled", query_dim, key_dim)
        self.scale = query_dim**-0.5

    def keys(self, k: Tensor) -> Tensor:
        return k

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q * self.scale, k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * self.scale) @ k.mT


class General(nn.Module):
    """qᵀ W k (Luong et al. 2015, equation 8, `general`). `keys` gives W k."""

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
    """vᵀ tanh(W q + U k + b) (Bahdanau et al. 2015, appendix A.1.2). `keys` gives U k.

    `hidden` is the width of the hidden layer; 0: the query's.
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
        return self.hidden_layer(q, k) @ self.weight

    def hidden_layer(self, q: Tensor, k: Tensor) -> Tensor:
        """tanh(W q + U k + b) of every pair, [..., T, S, hidden]."""
        return torch.tanh(self.query(q)[..., :, None, :] + k[..., None, :, :])


class Network(nn.Module):
    """vᵀ tanh(W₂ tanh(W q + U k + b₁) + b₂): a network of `depth` hidden layers over [q; k] (Bahdanau et al. 2015,
    section 3.1, has one, which is `additive`; a deeper one: Xu et al. 2015, section 3.1.2). `keys` gives U k; the
    rest is computed for every pair, at a cost of T·S·hidden² a layer.

    `hidden` is the width of its layers; 0: the query's.
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
        x = self.first.hidden_layer(q, k)
        for linear in self.deeper:
            x = linear(x).tanh()
        return x @ self.first.weight


class Cosine(nn.Module):
    """q·k / (τ |q| |k|) (Graves et al. 2014, equations 5 and 6, where β = 1/τ). `keys` gives k / |k|.

    `temperature` is τ, with `learned` its initial value.
    """

    def __init__(self, query_dim: int, key_dim: int, temperature: float = 0.1, learned: bool = True) -> None:
        super().__init__()
        _check_same_width("cosine", query_dim, key_dim)
        if temperature <= 0:
            raise SeqloomError(f"temperature of score 'cosine' is more than 0, here {temperature}")
        # The logarithm is trained, so that τ stays positive.
        self.temperature = nn.Parameter(torch.tensor([temperature]).log(), requires_grad=learned)

    def keys(self, k: Tensor) -> Tensor:
        return F.normalize(k, dim=-1)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1) * (-self.temperature).exp(), k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.normalize(q, dim=-1) @ k.mT * (-self.temperature).exp()


class Gaussian(nn.Module):
    """−w² |q − k|² / 2: softmax attention with it is kernel regression with Gaussians 1/w wide (Nadaraya 1964; Watson
    1964). w is trained, starting from 1/`width`; a width of 0 means d^¼, with which q·k is scaled as in `scaled`.

    |q − k|² = |q|² + |k|² − 2 q·k, so it is the dot product of [q, −|q|²/2, 1] and [k, 1, −|k|²/2]; `keys` gives the
    latter.
    """

    def __init__(self, query_dim: int, key_dim: int, width: float = 0.0) -> None:
        super().__init__()
        _check_same_width("gaussian", query_dim, key_dim)
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


def _check_same_width(name: str, query_dim: int, key_dim: int) -> None:
    if query_dim != key_dim:
        raise SeqloomError(
            f"score {name!r} needs queries and keys of one width, here {query_dim} and {key_dim}; "
            "choose 'general' or 'additive', or change encoder.dim or decoder.dim"
        )
