"""Tokens as vectors."""

from __future__ import annotations

from torch import nn


def embedding_of(size: int, dim: int, frozen: bool = False) -> nn.Embedding:
    """[...] ids below `size` -> [..., dim], at first of length 1 on average. `frozen`: they stay as they are."""
    made = nn.Embedding(size, dim)
    nn.init.normal_(made.weight, std=dim**-0.5)
    made.weight.requires_grad_(not frozen)
    return made
