"""Relative positions: a bias of the attention scores that depends on the distance of query and key."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.positions.position import Position


class Relative(Position):
    """A trained bias for each head and each bucket of distances, added to the scores of all layers (Raffel et al. 2020,
    section 2.1). Half of the `buckets` hold one distance each, the others logarithmically more, up to `far`; all beyond
    it share the last. Without a causal mask, half of the buckets are for keys after the query.
    """

    near: Tensor
    both: Tensor

    def __init__(self, dim: int, head_dim: int, buckets: int = 32, far: int = 128) -> None:
        super().__init__(dim, head_dim)
        if buckets < 4 or buckets % 2 or far <= buckets // 2:
            raise SeqloomError(
                "relative positions have an even number of buckets, 4 at least, and position.far is more than "
                f"half of it, here {buckets} and {far}"
            )
        self.far = far
        self.weight = nn.Parameter(torch.randn(buckets, _heads(dim, head_dim)) * dim**-0.5)
        # Integer tables: a logarithm computed on the device might round to another bucket.
        self.register_buffer("near", bucket_of(far, buckets), persistent=False)
        backward = bucket_of(far, buckets // 2)
        self.register_buffer("both", torch.cat([backward[1:].flip(0) + buckets // 2, backward]), persistent=False)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        distance = _distances(t, s, offset, self.near.device)
        if causal:
            bucket = self.near[distance.clamp(0, self.far)]
        else:
            bucket = self.both[distance.clamp(-self.far, self.far) + self.far]
        return nn.functional.embedding(bucket, self.weight).permute(2, 0, 1)[None].to(dtype)


def bucket_of(far: int, buckets: int) -> Tensor:
    """[far + 1]: the bucket of each distance."""
    exact = buckets // 2

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        fraction = math.log(distance / exact) / math.log(far / exact)
        return min(exact + int(fraction * (buckets - exact) + 1e-9), buckets - 1)  # 1e-9: log 4 / log 2 is 2, not 1.99…

    return torch.tensor([bucket(distance) for distance in range(far + 1)])


class Alibi(Position):
    """−m_h |i − j| added to the score of positions i and j, with slopes m_h = 2^(−8h/n) for the heads h = 1 … n (Press
    et al. 2022, section 3). If n is no power of two: the slopes of the next smaller power, then every other one of the
    next larger. Symmetric without a causal mask. Nothing is trained; any length.
    """

    ranks: Tensor

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__(dim, head_dim)
        heads = _heads(dim, head_dim)
        self.power = 1 << (heads.bit_length() - 1)
        ranks = [2 * h for h in range(1, self.power + 1)] + [2 * h - 1 for h in range(1, heads - self.power + 1)]
        # Integers, which casting a model to bfloat16 leaves alone.
        self.register_buffer("ranks", torch.tensor(ranks), persistent=False)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        slopes = torch.exp2(self.ranks.double() * (-4.0 / self.power))
        exact = torch.promote_types(dtype, torch.float32)
        distance = _distances(t, s, offset, self.ranks.device).abs().to(exact)
        return (-slopes.to(exact)[None, :, None, None] * distance).to(dtype)


def _heads(dim: int, head_dim: int) -> int:
    return dim // max(1, head_dim)  # attention refuses more heads than features


def _distances(t: int, s: int, offset: int, device: torch.device) -> Tensor:
    """[t, s]: query position − key position."""
    return torch.arange(offset, offset + t, device=device)[:, None] - torch.arange(s, device=device)
