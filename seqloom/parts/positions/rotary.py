"""Rotary positions: queries and keys are rotated by angles that grow with the position."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.acceleration import accelerated
from seqloom.errors import SeqloomError
from seqloom.parts.positions.absolute import Sinusoidal, frequencies
from seqloom.parts.positions.position import AttentionPosition, Position

CosSin = tuple[Tensor, Tensor]  # cosines and sines of the angles of some positions, [T, head_dim / 2] each


class Rotary(Position):
    """Pairs of features of q and k at position t are rotated by t·θ_i, θ_i = 10000^(−2i/d), so that q·k depends on the
    distance alone (Su et al. 2021, RoFormer, section 3.2)."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__(dim, head_dim)
        if head_dim % 2:
            raise SeqloomError(f"rotary positions rotate pairs: the width of a head must be even, here {head_dim}")
        self.head_dim = head_dim

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        return self.prepare(q, offset).rotate(q, k, offset)

    def prepare(self, x: Tensor, offset: int = 0) -> AttentionPosition:
        # No buffer: a model cast to bfloat16 would cast it too, and then positions 1001 and 1002 are the same.
        exact = torch.promote_types(x.dtype, torch.float32)
        positions = torch.arange(offset, offset + x.size(-2), device=x.device, dtype=exact)
        angle = positions[:, None] * frequencies(self.head_dim, exact, x.device)
        return RotaryTable(angle.cos(), angle.sin(), offset)


class SinusoidalRotary(Rotary, Sinusoidal):
    """Both: sinusoids in the embedding (Vaswani et al. 2017), and rotated queries and keys (Su et al. 2021). With
    rotation alone tokens know their distances but not where they stand, and cross-attention, which rotates nothing,
    has no positions to go by."""


class RotaryTable(NamedTuple):
    """The rotations of positions from `start` on: cosines and sines, [T, head_dim / 2]."""

    cos: Tensor
    sin: Tensor
    start: int

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        cos, sin = self.angles(offset, q.size(-2))
        return rotate(q, cos, sin), rotate(k, cos, sin)

    def angles(self, offset: int, count: int) -> CosSin:
        """Those of `count` positions from `offset` on."""
        if count == self.cos.size(0):  # all: an export knows the count, but not that `offset` is `start`
            return self.cos, self.sin
        first = offset - self.start
        return self.cos[first : first + count], self.sin[first : first + count]

    bias = Position.bias


@accelerated
def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair of features (2i, 2i+1) of x [..., T, head_dim] rotated by the angle with this cosine and sine, in
    float32 at least."""
    exact = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(exact), sin.to(exact)
    even, odd = x[..., 0::2].to(exact), x[..., 1::2].to(exact)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)
