"""Sliding-window attention in chunks, by views of the padded keys instead of gathered ones."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.fast.attention.mixers.by_heads import by_heads
from seqloom.fast.attention.mixers.groups import fused_groups
from seqloom.parts.mixers import window
from seqloom.parts.mixers.efficient_attention import pad_time
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.visibility import Visibility


def supported(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> bool:
    return True


@twin_of(window_attention, supported, compiles=True)
def chunked_window_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """A chunk of queries sees its own chunk of keys and those beside it."""
    n, width = q.size(2), visible.window or 1
    chunk, first = min(width, window.CHUNK), min(first, n)
    count, back = -(-n // chunk), -(-(width - 1) // chunk) * chunk
    size, missing = back + chunk + (0 if visible.causal else back), count * chunk - n
    keep = _chunk_mask((count, chunk, size, back), n, visible, first, q.device)
    bias = q.new_zeros(()).masked_fill(~keep, float("-inf"))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries = pad_time(q, 0, missing).unflatten(2, (count, chunk))
        keys, values = (pad_time(x, back, size - back - chunk + missing).unfold(2, size, chunk).mT for x in (k, v))
        if first:
            keys, values = (
                torch.cat([x[:, :, None, :first].expand(-1, -1, count, -1, -1), beside], 3)
                for x, beside in ((k, keys), (v, values))
            )
        return fused_groups(queries, keys, values, bias[:, None]).flatten(2, 3)[:, :, :n]

    return by_heads(attend, q, k, v, times=size // chunk)


def _chunk_mask(
    sizes: tuple[int, int, int, int], n: int, visible: Visibility, first: int, device: torch.device
) -> Tensor:
    """[B or 1, N, T, first + S]: which of the first positions and of those beside it each query of a chunk sees."""
    count, chunk, size, back = sizes
    query, key = group_positions(count, chunk, chunk, 0, device), group_positions(count, size, chunk, -back, device)
    distance = torch.arange(back, back + chunk, device=device)[:, None] - torch.arange(size, device=device)
    width = visible.window or n
    band = (distance < width) & (distance > (-1 if visible.causal else -width))
    real, first_keys = ((key >= first) & (key < n))[None], torch.arange(first, device=device)
    if visible.lengths is not None and not visible.causal:  # causal, a real position never sees a padded one
        real = real & (key < visible.lengths[:, None, None])
        first_keep = (first_keys < visible.lengths[:, None])[:, None, None].expand(-1, count, chunk, -1)
    elif visible.causal:
        first_keep = (first_keys <= query[:, :, None])[None]
    else:
        first_keep = (first_keys.expand(count, chunk, -1) >= 0)[None]
    return torch.cat([first_keep, band & real[:, :, None]], -1)


def group_positions(count: int, size: int, step: int, start: int, device: torch.device) -> Tensor:
    """[count, size]: group i has the `size` positions from `start` + i·`step` on."""
    return torch.arange(count, device=device)[:, None] * step + start + torch.arange(size, device=device)
