"""Attention within groups by torch's fused kernels, which want four axes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.parts.mixers.efficient_attention import grouped_attention


def supported(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> bool:
    return True


@twin_of(grouped_attention, supported, compiles=True)
def fused_groups(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """`keep` may also be a bias, added to the scores."""
    b, h = q.shape[:2]
    keep = keep[0] if keep.shape[:2] == (1, 1) else keep.expand(b, h, -1, -1, -1).flatten(0, 1)
    flat = (x.flatten(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(*flat, attn_mask=keep, scale=1.0).unflatten(0, (b, h))
