"""Attention between blocks: neighbors are views of the padded keys, since gathering is slow; and one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.fast.attention.mixers.by_heads import by_heads
from seqloom.fast.attention.mixers.groups import fused_groups
from seqloom.parts.mixers.efficient_attention import pad_time
from seqloom.parts.mixers.sparse import ChosenBlocks, attend_blocks, first_and_last, gather_blocks


def supported(q: Tensor, k: Tensor, v: Tensor, chosen: ChosenBlocks, keep: Tensor) -> bool:
    return True


@twin_of(attend_blocks, supported, compiles=True)
def attend_views(q: Tensor, k: Tensor, v: Tensor, chosen: ChosenBlocks, keep: Tensor) -> Tensor:
    """Of the chosen blocks the first three are neighbors, and the next two the first block and the last."""
    ends = (x.take_along_dim(first_and_last(chosen.last)[..., None, None], 2) for x in (k, v))
    return by_heads(_attend_views, q, k, v, *ends, chosen.block[..., 5:], keep)


def _attend_views(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
    key_ends, value_ends, others, keep = rest
    return fused_groups(q, _visible_blocks(k, key_ends, others), _visible_blocks(v, value_ends, others), keep)


def _visible_blocks(x: Tensor, ends: Tensor, others: Tensor) -> Tensor:
    """Blocks [B, heads, blocks, S, D], the first and the last of them, and the indices of others [B or 1, heads,
    blocks, K] -> what each query block sees, [B, heads, blocks, (5 + K)·S, D]. Only the others are gathered."""
    count, size = x.shape[2:4]
    neighbors = pad_time(x.flatten(2, 3), size, size).unfold(2, 3 * size, size).mT
    ends = ends.flatten(2, 3)[:, :, None].expand(-1, -1, count, -1, -1)
    return torch.cat([neighbors, ends, gather_blocks(x, others)], 3)
