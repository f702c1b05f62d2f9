"""Words together with their neighbours as vectors: `not good` is another thing than `not` and `good`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError

PRIME = (1 << 31) - 1
FACTOR = 1_327_217_885  # PRIME over the golden ratio, nearly: it spreads neighbours far apart


class Grams(nn.Module):
    """Σ_n E[h(w_t−n+1 … w_t)] for n = 2 … `longest`: [B, S] ids -> [B, S, dim], of the n-grams that end at each place
    (fastText: Joulin et al. 2017, section 2.2).

    They share `buckets` rows of E by a hash h (Weinberger et al. 2009), as there are too many to number: remainders of
    whole numbers (Carter & Wegman 1979), the same on every device. E begins as nothing, so that n-grams that were never
    seen say nothing.
    """

    def __init__(self, longest: int, buckets: int, dim: int) -> None:
        super().__init__()
        self.longest = longest
        self.table = nn.Embedding(buckets, dim)
        nn.init.zeros_(self.table.weight)

    def places(self, ids: Tensor) -> Tensor:
        """Where E has the n-grams that end at each place, [longest - 1, B, S]; before the first word stands 0."""
        found, hashed = [], ids
        for n in range(1, self.longest):
            hashed = ((hashed + 1) * FACTOR + F.pad(ids, (n, 0))[:, : ids.size(1)]) % PRIME
            found.append(hashed * FACTOR % PRIME % self.table.num_embeddings)
        return torch.stack(found)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(self.places(ids)).sum(0)


def grams_of(longest: int, buckets: int, dim: int) -> Grams | None:
    """None where a word stands for itself alone."""
    if longest < 1 or buckets < 1:
        raise SeqloomError(f"ngrams and buckets are at least 1, here {longest} and {buckets}")
    return Grams(longest, buckets, dim) if longest > 1 else None


def entered(ids: Tensor, words: nn.Embedding, grams: Grams | None) -> Tensor:
    """[B, S] ids -> [B, S, dim]."""
    return words(ids) if grams is None else words(ids) + grams(ids)
