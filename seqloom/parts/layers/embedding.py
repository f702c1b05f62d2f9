"""Token embeddings."""

from __future__ import annotations

from torch import nn


def embedding_of(size: int, dim: int) -> nn.Embedding:
    """[...] ids below `size` -> [..., dim]; initial vectors have length 1 on average."""
    embedding = nn.Embedding(size, dim)
    nn.init.normal_(embedding.weight, std=dim**-0.5)
    return embedding
