"""Output layers, from a state to the next token: [..., dim] -> a score for each of `size` tokens."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from seqloom.parts.state import State


class TokenLosses(NamedTuple):
    """−log p of each label, the state that the next batch continues from, and a penalty added to the mean loss."""

    nats: Tensor  # [N]; [] where only the sum was requested
    state: State
    penalty: Tensor | None = None


class Softmax(nn.Module):
    """softmax(W h + b) over all tokens (Bengio et al. 2003, section 2)."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, size)
        nn.init.normal_(self.linear.weight, std=dim**-0.5)
        nn.init.zeros_(self.linear.bias)

    def tie(self, embedding: nn.Embedding) -> None:
        """Share the matrix with the embedding (Press & Wolf 2017; Inan et al. 2017)."""
        dim = self.linear.in_features
        if embedding.embedding_dim != dim:
            raise SeqloomError(
                f"tie_embeddings needs the width of the last layer equal to embedding, here {dim} and "
                f"{embedding.embedding_dim}"
            )
        self.linear.weight = embedding.weight

    def forward(self, states: Tensor) -> Tensor:
        return self.linear(states)

    def nats(self, states: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """[N, dim] and [N] -> −log p of each label, [N]."""
        # Under autocast cross_entropy itself computes in float32.
        return F.cross_entropy(self.linear(states), labels, reduction="none", label_smoothing=smoothing)

    def total(self, states: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Their sum, []."""
        return cross_entropy_sum(states, self.linear, labels, smoothing)


class Adaptive(nn.Module):
    """Adaptive softmax: frequent tokens directly, rare ones through clusters of fewer dimensions (Grave et al. 2017).

    `cutoffs`: the first id of each cluster; ids are sorted by frequency. Empty: 2,000 and 10,000, if the vocabulary is
    large enough. Each cluster has `divide` times fewer dimensions than the previous one.
    """

    def __init__(self, dim: int, size: int, cutoffs: list[int] = [], divide: float = 4.0) -> None:  # noqa: B006
        super().__init__()
        chosen = cutoffs or [cut for cut in (2_000, 10_000) if 2 * cut < size] or [max(size // 2, 1)]
        if sorted(set(chosen)) != chosen or chosen[0] < 1 or chosen[-1] >= size:
            raise SeqloomError(f"cutoffs rise and lie between 1 and the {size} tokens, here {chosen}")
        self.bounds = [0, *chosen, size]
        self.head = nn.Linear(dim, chosen[0] + len(chosen), bias=False)
        self.tails = nn.ModuleList()
        for number, (low, high) in enumerate(pairwise(self.bounds[1:]), 1):
            narrow = max(1, int(dim // divide**number))
            self.tails.append(nn.Sequential(nn.Linear(dim, narrow, False), nn.Linear(narrow, high - low, False)))

    def tie(self, embedding: nn.Embedding) -> None:
        raise SeqloomError(
            "tie_embeddings goes with output: softmax; an adaptive softmax has no matrix of the embedding's shape"
        )

    def forward(self, states: Tensor) -> Tensor:
        """log p of every token."""
        first, head = self.bounds[1], self.head(states).log_softmax(-1)
        parts = [tail(states).log_softmax(-1) + head[..., first + i, None] for i, tail in enumerate(self.tails)]
        return torch.cat([head[..., :first], *parts], -1)

    def nats(self, states: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """[N, dim] and [N] -> −log p of each label, [N]: a cluster is computed only for the labels in it."""
        if smoothing:
            raise SeqloomError("training.label_smoothing goes with output: softmax")
        first, target = self.bounds[1], labels.clone()
        clusters = []
        for i, (low, high) in enumerate(pairwise(self.bounds[1:])):
            inside = ((labels >= low) & (labels < high)).nonzero()[:, 0]
            target[inside] = first + i
            clusters.append((inside, low))
        nats = F.cross_entropy(self.head(states), target, reduction="none")
        for tail, (inside, low) in zip(self.tails, clusters, strict=True):
            more = F.cross_entropy(tail(states[inside]), labels[inside] - low, reduction="none")
            nats = nats.index_add(0, inside, more)
        return nats

    def total(self, states: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Their sum, []."""
        return self.nats(states, labels, smoothing).sum()


TOKEN_OUTPUTS = {"softmax": Softmax, "adaptive": Adaptive}
