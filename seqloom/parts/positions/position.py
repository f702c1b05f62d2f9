"""Where a token stands: what every position offers to a Transformer and to its self-attention."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn


class AttentionPosition(Protocol):
    """What self-attention knows of a position."""

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]: ...

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None: ...


class Position(nn.Module):
    """A position adds to the embedding (`forward`), rotates queries and keys (`rotate`), or adds to the scores of
    self-attention (`bias`). Rows are padded after, so the index in a row is the position."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """[R, T, dim] -> the same; the first step stands at `offset`."""
        return x

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """[R, heads, T, head_dim], queries and keys of self-attention -> the same."""
        return q, k

    def prepare(self, x: Tensor, offset: int = 0) -> AttentionPosition:
        """What all layers share in one pass over x [R, T, dim], whose first step stands at `offset`."""
        return self

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None:
        """[1, heads, t, s] or None: added to the scores of `t` queries from position `offset` on and `s` keys from 0
        on. `causal`: keys after a query are hidden."""
        return None


class NoPosition(Position):
    """No positions: attention sees a bag of tokens; a causal decoder can still count (Haviv et al. 2022)."""
