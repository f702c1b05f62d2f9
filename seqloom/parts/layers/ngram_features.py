"""Embeddings of n-grams by hashing: `not good` differs from `not` and `good`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError

PRIME = (1 << 31) - 1
FACTOR = 1_327_217_885  # about PRIME / golden ratio: neighboring ids get distant hashes


class NgramFeatures(nn.Module):
    """Σ_n E[h(w_t−n+1 … w_t)] for n = 2 … `longest`: [B, S] ids -> [B, S, dim], of the n-grams that end at each
    position (fastText: Joulin et al. 2017, section 2.2).

    They share `buckets` rows of E by a hash h (Weinberger et al. 2009; modular, Carter & Wegman 1979), equal on every
    device. E starts at zero, so n-grams that were never seen add nothing.
    """

    def __init__(self, longest: int, buckets: int, dim: int) -> None:
        super().__init__()
        self.longest = longest
        self.table = nn.Embedding(buckets, dim)
        nn.init.zeros_(self.table.weight)

    def rows(self, ids: Tensor) -> Tensor:
        """The rows of E of the n-grams that end at each position, [longest - 1, B, S]; ids before the first are 0."""
        rows, hashed = [], ids
        for n in range(1, self.longest):
            hashed = ((hashed + 1) * FACTOR + F.pad(ids, (n, 0))[:, : ids.size(1)]) % PRIME
            rows.append(hashed * FACTOR % PRIME % self.table.num_embeddings)
        return torch.stack(rows)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(self.rows(ids)).sum(0)


def ngram_features(longest: int, buckets: int, dim: int) -> NgramFeatures | None:
    """None for `longest` 1: single tokens only."""
    if longest < 1 or buckets < 1:
        raise SeqloomError(f"ngrams and buckets are at least 1, here {longest} and {buckets}")
    return NgramFeatures(longest, buckets, dim) if longest > 1 else None


def embed_with_ngrams(ids: Tensor, words: nn.Embedding, grams: NgramFeatures | None) -> Tensor:
    """[B, S] ids -> [B, S, dim], the sum of both embeddings."""
    return words(ids) if grams is None else words(ids) + grams(ids)
