"""Word vectors: a word's vector predicts the words around it."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.parts.layers.embedding import embedding_of


class SkipGram(nn.Module):
    """Skip-gram with negative sampling (Mikolov et al. 2013, section 2.2, https://arxiv.org/abs/1310.4546).

    `source` holds the vectors; `context`, those of words as neighbors, is only for training.
    """

    def __init__(self, source_size: int, embedding: int = 100) -> None:
        super().__init__()
        self.source = embedding_of(source_size, embedding)
        self.context = nn.Embedding(source_size, embedding)
        nn.init.zeros_(self.context.weight)

    def forward(self, center: Tensor, others: Tensor) -> Tensor:
        """[N] words and [N, K] others -> [N, K], scores of being a neighbor."""
        return (self.context(others) @ self.source(center)[:, :, None])[:, :, 0]


MODELS = {"skipgram": SkipGram}
