"""Sparse attention with global positions: the window of Longformer, the blocks of BigBird."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.parts.attention.multi_head import merge_heads, split_heads
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import (
    EfficientAttention,
    at_least,
    dense_attention,
    grouped_attention,
    pad_time,
)
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.positions.position import AttentionPosition
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

Qkv = tuple[Tensor, Tensor, Tensor]


class Longformer(EfficientAttention):
    """Attention over |i − j| < window, and between the `first` positions and all others; queries of the first have
    projections of their own, also for the keys and values they see (Beltagy et al. 2020, section 3.1,
    https://arxiv.org/abs/2004.05150).

    The first positions see all later ones, so it cannot be causal. Reports its weights, [B, heads, T, S].
    """

    causal = False

    def __init__(
        self, dim: int, heads: int, score: Annotated[Choice, SCORES], window: int = 256, first: int = 1
    ) -> None:
        super().__init__(dim, heads, score)
        self.window, self.first = at_least("window", window), at_least("first", first)
        self.asking, self.asked = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        for weight in (self.asking.weight, *self.asked.weight.chunk(2)):
            nn.init.xavier_uniform_(weight)
        for linear in (self.asking, self.asked):
            nn.init.zeros_(linear.bias)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        rotate = self.rotation(position)
        q, k, v = self.project_heads(x)
        q, k = rotate(q, k)
        q, k = self.score.as_dot(q, self.score.keys(k))
        global_q = split_heads(self.asking(x[:, : self.first]), self.head_dim)
        global_k, global_v = (split_heads(part, self.head_dim) for part in self.asked(x).chunk(2, -1))
        global_k = self.score.keys(rotate(global_k, global_k)[0])
        global_q, global_k = self.score.as_dot(rotate(global_q, global_q)[0], global_k)
        y = self.attend_local_and_global((q, k, v), (global_q, global_k, global_v), Visibility(lengths=visible.lengths))
        return self.out(merge_heads(y)), state

    def attend_local_and_global(self, local: Qkv, from_first: Qkv, visible: Visibility) -> Tensor:
        """[B, heads, T, D] from q, k and v of all positions, and from those with which the first positions attend."""
        if self.probe is None:
            y = window_attention(*local, replace(visible, window=self.window), self.first)
            first = dense_attention(*from_first, visible)
        else:
            reports, n = [], local[0].size(2)
            is_first = torch.arange(n, device=local[0].device) < self.first
            band = Visibility(window=self.window).keep(n, n, is_first.device)
            assert band is not None
            masked = replace(visible, bias=_bias(local[0], ~(band | is_first)))
            y = dense_attention(*local, masked, reports.append)
            first = dense_attention(*from_first, visible, reports.append)
            self.probe(torch.cat([reports[1], reports[0][:, :, self.first :]], 2))
        return torch.cat([first, y[:, :, self.first :]], 2)


class ChosenBlocks(NamedTuple):
    """The key blocks that each query block sees."""

    block: Tensor  # [B or 1, heads, blocks, K], their indices
    keep: Tensor  # [B or 1, heads, blocks, K], False for those out of range or listed before
    last: Tensor  # [B or 1, 1, 1], each row's last block


class BigBird(EfficientAttention):
    """Attention between blocks of `block` positions: each sees itself and its neighbors, the first and the last, and
    `random` others; the first and the last see all (Zaheer et al. 2020, section 2, https://arxiv.org/abs/2007.14062).

    The others are drawn for every head and block from `seed` alone; up to four blocks, all are seen. The first block
    sees all later ones, so it cannot be causal. Reports its weights, [B, heads, T, S].
    """

    causal = False

    def __init__(
        self,
        dim: int,
        heads: int,
        score: Annotated[Choice, SCORES],
        block: int = 64,
        random: int = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(dim, heads, score)
        self.block, self.random, self.seed = at_least("block", block), at_least("random", random, 0), seed

    @accelerated
    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        n, count = q.size(2), -(-q.size(2) // self.block)
        visible = Visibility(lengths=visible.lengths)
        chosen = self.choose(count, visible.lengths, q.device)
        if self.probe is not None:
            keep = _block_pairs(chosen, count).repeat_interleave(self.block, -1).repeat_interleave(self.block, -2)
            visible = Visibility(lengths=visible.lengths, bias=_bias(q, ~keep[..., :n, :n]))
            return dense_attention(q, k, v, visible, self.probe), state
        queries, keys, values = (
            pad_time(x, 0, count * self.block - n).unflatten(2, (count, self.block)) for x in (q, k, v)
        )
        lengths = q.new_full((1,), n, dtype=torch.long) if visible.lengths is None else visible.lengths
        y = attend_blocks(queries, keys, values, chosen, self._key_mask(chosen, lengths))
        # The first block and the last see everything.
        ends = queries.take_along_dim(first_and_last(chosen.last)[..., None, None], 2).flatten(2, 3)
        y_ends = dense_attention(ends, k, v, visible).unflatten(2, (2, self.block))
        index = torch.arange(count, device=q.device)[:, None, None]
        y = torch.where(index == 0, y_ends[:, :, :1], y)
        y = torch.where(index == chosen.last[..., None, None], y_ends[:, :, 1:], y)
        return y.flatten(2, 3)[:, :, :n], state

    def choose(self, count: int, lengths: Tensor | None, device: torch.device) -> ChosenBlocks:
        """It depends on a row's own length and not on its padding, so a row gets the same blocks in any batch."""
        index = torch.arange(count, device=device)[:, None]
        last = index[-1:, None, None] if lengths is None else ((lengths - 1) // self.block)[:, None, None, None]
        neighbors = torch.cat([index - 1, index, index + 1], -1).expand(1, 1, -1, -1)
        ends = first_and_last(last[..., 0])[:, :, None].expand(-1, -1, count, -1)
        hashes = _hashes(self.heads, count, self.random, self.seed, device)
        others = hashes % (last - 4).clamp(min=1) + 1  # neither the ends nor the three neighbors
        others = torch.where(others >= index - 1, others + 3, others).masked_fill(last < 5, -1)
        shape = (last.size(0), self.heads, count, -1)
        block = torch.cat([part.expand(shape) for part in (neighbors, ends, others)], -1)
        repeated = (block[..., :, None] == block[..., None, :]).tril(-1).any(-1)
        keep = (block >= 0) & (block <= last) & ~repeated
        return ChosenBlocks(block.masked_fill(~keep, 0), keep, last[..., 0])

    def _key_mask(self, chosen: ChosenBlocks, lengths: Tensor) -> Tensor:
        """[B or 1, heads, blocks, 1, K·block]"""
        key = chosen.block[..., None] * self.block + torch.arange(self.block, device=lengths.device)
        keep = (key < lengths[:, None, None, None, None]) & chosen.keep[..., None]
        return keep.flatten(3)[:, :, :, None]


@accelerated
def attend_blocks(q: Tensor, k: Tensor, v: Tensor, chosen: ChosenBlocks, keep: Tensor) -> Tensor:
    """Each query block over the key blocks chosen for it: q, k and v [B, heads, blocks, S, D], a mask `keep` [B or 1,
    heads, blocks, 1, K·S] -> [B, heads, blocks, S, D]."""
    return grouped_attention(q, gather_blocks(k, chosen.block), gather_blocks(v, chosen.block), keep)


def first_and_last(last: Tensor) -> Tensor:
    """[B, 1, 1] -> [B, 1, 2]: the indices of the first block and the last."""
    return torch.cat([torch.zeros_like(last), last], -1)


def gather_blocks(x: Tensor, block: Tensor) -> Tensor:
    """[B, heads, blocks, S, D] and indices of blocks [B or 1, heads, blocks, K] -> [B, heads, blocks, K·S, D]."""
    b, h, count = x.shape[:3]
    start = torch.arange(b * h, device=x.device).view(b, h, 1, 1) * count
    gathered = x.flatten(0, 2).index_select(0, (block + start).flatten())
    return gathered.view(b, h, count, -1, x.size(-1))


def _block_pairs(chosen: ChosenBlocks, count: int) -> Tensor:
    """[B or 1, heads, blocks, blocks]: which block sees which."""
    index = torch.arange(count, device=chosen.block.device)
    pairs = ((chosen.block[..., None] == index) & chosen.keep[..., None]).any(-2)
    return pairs | ((index == 0) | (index == chosen.last))[..., None]


def _hashes(heads: int, blocks: int, random: int, seed: int, device: torch.device) -> Tensor:
    """[heads, blocks, random] pseudo-random integers: each a hash of its own index, so independent of the shape."""
    head, block, number = (torch.arange(n, device=device) for n in (heads, blocks, random))
    mixed = head[:, None, None] * 73856093 ^ block[:, None] * 19349663 ^ number * 83492791 ^ (seed + 1) * 40503
    for factor, shift in ((2654435761, 15), (2246822519, 13), (3266489917, 16)):
        mixed = mixed * factor & 0xFFFFFFFF
        mixed = mixed ^ (mixed >> shift)
    return mixed


def _bias(like: Tensor, hidden: Tensor) -> Tensor:
    return like.new_zeros(()).masked_fill(hidden, float("-inf"))
