"""Sliding-window attention on a GPU by torch's FlexAttention (Dong et al. 2024, https://arxiv.org/abs/2412.05496),
which skips hidden blocks."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.visibility import Visibility

BLOCK = 128  # queries, and keys, in a block
MIN_LENGTH = 129  # positions
PROGRAMS = 64  # compiled kernels: one for each window and visibility, with and without gradients


def supported(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> bool:
    """Whether it has a kernel, with a block mask that does not depend on the lengths of a batch."""
    sizes = q.dtype != torch.float64 and q.size(-1) in (16, 32, 64, 128, 256) and q.size(2) >= MIN_LENGTH
    return q.is_cuda and sizes and (visible.causal or visible.lengths is None)


@twin_of(window_attention, supported, compiles=True)
def flex_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    mask = _block_mask(q.size(2), visible.window or 1, visible.causal, first, q.device)
    # Beyond its limit, 8 by default, torch would stop compiling and compute all n × n scores.
    with torch.compiler.config.patch(recompile_limit=PROGRAMS):  # pyright: ignore[reportAttributeAccessIssue]
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
