"""Tokens as vectors."""

from __future__ import annotations

from torch import nn


def embedding_of(size: int, dim: int) -> nn.Embedding:
    """[...] ids below `size` -> [..., dim], at first of length 1 on average."""
    made = nn.Embedding(size, dim)
    nn.init.normal_(made.weight, std=dim**-0.5)
    return made
