"""Sliding-window attention: each position sees its neighbors, at a cost of length times window."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Annotated, Any

import torch
from torch import Tensor

from seqloom.build import Choice
from seqloom.fast.attention import window_cpu
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import (
    EfficientAttention,
    at_least,
    dense_attention,
    group_positions,
    grouped_attention,
    map_heads,
    pad_time,
)
from seqloom.parts.state import MixerState, State
from seqloom.parts.visibility import Visibility

BLOCK = 128  # queries, and keys, in a block of FlexAttention
CHUNK = 128  # queries at a time, for which keys are read once
FLEX_PROGRAMS = 64  # compiled kernels: one for each window and visibility, with and without gradients


class Window(EfficientAttention):
    """Sliding-window attention: y_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i − j| < window, causal also j ≤ i
    (Beltagy et al. 2020, section 3.1, https://arxiv.org/abs/2004.05150; as in Child et al. 2019).

    L layers reach L·(window − 1) positions on each side. The state is the last window of keys and values. Reports its
    weights, [B, heads, T, S].
    """

    bounded = True

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES], window: int = 256) -> None:
        super().__init__(dim, heads, score)
        self.window = at_least("window", window)

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: MixerState | None
    ) -> tuple[Tensor, State]:
        before = 0
        if state is not None:
            k, v = (torch.cat([*state.parts[i : i + 1], new], 2) for i, new in enumerate((k, v)))
            before = k.size(2) - q.size(2)
            last = max(0, k.size(2) - self.window + 1)
            state = MixerState(state.used + q.size(2), (k[:, :, last:], v[:, :, last:]))
        visible = replace(visible, window=self.window, offset=before)
        if q.size(2) == 1:  # sees all keys of the state
            visible = replace(visible, window=None)
        if self.probe is not None or q.size(2) == 1:
            return dense_attention(q, k, v, visible, self.probe), state
        return window_attention(pad_time(q, before, 0), k, v, visible)[:, :, before:], state


def window_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """softmax(q·kᵀ) v over the window of `visible`, and over the `first` positions at any distance; all [B, heads, T,
    D]. By the dense kernel where the window covers the row, FlexAttention on a GPU, slices of long rows on a CPU, else
    in chunks."""
    n = q.size(2)
    assert visible.window is not None
    if visible.window >= n:
        return dense_attention(q, k, v, replace(visible, window=None, offset=0))
    if window_cpu.supported(q, k, v, visible):
        return window_cpu.window_attention(q, k, v, visible, first)
    if _flex_supported(q, visible):
        return _flex_attention(q, k, v, visible, first)
    return chunked_window_attention(q, k, v, visible, first)


def chunked_window_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """`window_attention` with plain kernels: a chunk of queries sees its own chunk of keys and those beside it."""
    n, window = q.size(2), visible.window or 1
    chunk, first = min(window, CHUNK), min(first, n)
    count, back = -(-n // chunk), -(-(window - 1) // chunk) * chunk
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
        return grouped_attention(queries, keys, values, bias[:, None]).flatten(2, 3)[:, :, :n]

    return map_heads(attend, q, k, v, times=size // chunk)


def _chunk_mask(
    sizes: tuple[int, int, int, int], n: int, visible: Visibility, first: int, device: torch.device
) -> Tensor:
    """[B or 1, N, T, first + S]: which of the first positions and of those beside it each query of a chunk sees."""
    count, chunk, size, back = sizes
    query, key = group_positions(count, chunk, chunk, 0, device), group_positions(count, size, chunk, -back, device)
    distance = torch.arange(back, back + chunk, device=device)[:, None] - torch.arange(size, device=device)
    window = visible.window or n
    band = (distance < window) & (distance > (-1 if visible.causal else -window))
    real, first_keys = ((key >= first) & (key < n))[None], torch.arange(first, device=device)
    if visible.lengths is not None and not visible.causal:  # causal, a real position never sees a padded one
        real = real & (key < visible.lengths[:, None, None])
        first_keep = (first_keys < visible.lengths[:, None])[:, None, None].expand(-1, count, chunk, -1)
    elif visible.causal:
        first_keep = (first_keys <= query[:, :, None])[None]
    else:
        first_keep = (first_keys.expand(count, chunk, -1) >= 0)[None]
    return torch.cat([first_keep, band & real[:, :, None]], -1)


def _flex_supported(q: Tensor, visible: Visibility) -> bool:
    """Whether FlexAttention has a kernel, with a block mask that does not depend on the lengths of a batch."""
    sizes = q.dtype != torch.float64 and q.size(-1) in (16, 32, 64, 128, 256) and q.size(2) > CHUNK
    return q.is_cuda and sizes and (visible.causal or visible.lengths is None)


def _flex_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int) -> Tensor:
    """By torch's FlexAttention (Dong et al. 2024, https://arxiv.org/abs/2412.05496), which skips hidden blocks."""
    mask = _block_mask(q.size(2), visible.window or 1, visible.causal, first, q.device)
    # Beyond its limit, 8 by default, torch would stop compiling and compute all n × n scores.
    with torch.compiler.config.patch(recompile_limit=FLEX_PROGRAMS):  # pyright: ignore[reportAttributeAccessIssue]
        return _compiled_flex_attention()(q, k, v, block_mask=mask, scale=1.0)


@cache
def _compiled_flex_attention() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@lru_cache(64)  # as many lengths as recur
def _block_mask(n: int, window: int, causal: bool, first: int, device: torch.device) -> Any:
    """FlexAttention's block mask, from the distances of blocks: torch's own would look at all n × n pairs."""
    from torch.nn.attention.flex_attention import BlockMask

    def keep(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        close = (query - key < window) & (key - query < window) | (key < first)
        return close & (query >= key) if causal else close

    start = torch.arange(0, n, BLOCK)
    least, greatest = start[:, None] - start - BLOCK + 1, start[:, None] - start + BLOCK - 1  # distances
    some, every = (greatest > -window) & (least < window) | (start < first), (least > -window) & (greatest < window)
    every = every | (start + BLOCK <= first)
    if causal:
        some, every = some & (greatest >= 0), every & (least >= 0)
    whole = start + BLOCK <= n
    every = every & whole & whole[:, None]
    partial, full = (_block_lists(blocks, device) for blocks in (some & ~every, every))
    return BlockMask.from_kv_blocks(*partial, *full, BLOCK_SIZE=BLOCK, mask_mod=keep, seq_lengths=(n, n))


def _block_lists(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """[Q, K] bool -> how many key blocks each query block has, [1, 1, Q], and their indices first, [1, 1, Q, K]."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return tuple(part.to(device, torch.int32)[None, None] for part in (blocks.sum(-1), order))  # pyright: ignore
