"""Sparse attention with places that see everything: the window of Longformer, the blocks of BigBird."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.head_projections import Heads, at_least, by_head, dense, folded, padded
from seqloom.parts.mixers.window import near
from seqloom.parts.positions.positions import Turns
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

Triple = tuple[Tensor, Tensor, Tensor]


class Longformer(Heads):
    """Attention over |i − j| < window, and between the `first` places and all others, with queries, keys and values of
    their own where these ask (Beltagy et al. 2020, section 3.1, https://arxiv.org/abs/2004.05150).

    The first places see all that comes after, so it cannot write. Reports its weights, [B, heads, T, S].
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
        self, x: Tensor, visible: Visibility, state: State = None, position: Turns | None = None
    ) -> tuple[Tensor, State]:
        turn = self.turn(position)
        q, k, v = self._projected(x, "qkv")
        q, k = turn(q, k)
        q, k = self.score.as_dot(q, self.score.keys(k))
        some = self._split(self.asking(x[:, : self.first]))
        keys, values = (self._split(part) for part in self.asked(x).chunk(2, -1))
        some, keys = self.score.as_dot(turn(some, some)[0], self.score.keys(turn(keys, keys)[0]))
        y = self.join((q, k, v), (some, keys, values), Visibility(lengths=visible.lengths))
        return self.out(y.transpose(1, 2).flatten(2)), state

    def join(self, close: Triple, wide: Triple, visible: Visibility) -> Tensor:
        """[B, heads, T, D]: queries, keys and values of all, and those with which the first places ask."""
        if self.probe is None:
            y, first = near(*close, replace(visible, window=self.window), self.first), dense(*wide, visible)
        else:
            reports, n = [], close[0].size(2)
            known = torch.arange(n, device=close[0].device) < self.first
            seen = Visibility(window=self.window).keep(n, n, known.device)
            assert seen is not None
            hidden = replace(visible, bias=_bias(close[0], ~(seen | known)))
            y, first = dense(*close, hidden, reports.append), dense(*wide, visible, reports.append)
            self.probe(torch.cat([reports[1], reports[0][:, :, self.first :]], 2))
        return torch.cat([first, y[:, :, self.first :]], 2)


class Chosen(NamedTuple):
    """The blocks of keys that each block of queries sees, [B or 1, heads, blocks, K], and whether each counts."""

    block: Tensor
    counts: Tensor
    last: Tensor  # [B or 1, 1, 1]: each row's last block


class BigBird(Heads):
    """Attention between blocks of `block` places: each sees itself and those beside it, the first and the last, and
    `random` others; the first and the last see all (Zaheer et al. 2020, section 2, https://arxiv.org/abs/2007.14062).

    The others are drawn for every head and block, from `seed` alone; up to four blocks are all seen. The first block
    sees all that comes after, so it cannot write. Reports its weights, [B, heads, T, S].
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

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        n, count = q.size(2), -(-q.size(2) // self.block)
        visible = Visibility(lengths=visible.lengths)
        if count <= 4 and self.probe is None:
            return dense(q, k, v, visible), state
        chosen = self.choose(count, visible.lengths, q.device)
        if self.probe is not None:
            hidden = ~_pairs(chosen, count).repeat_interleave(self.block, -1).repeat_interleave(self.block, -2)
            return dense(
                q, k, v, Visibility(lengths=visible.lengths, bias=_bias(q, hidden[..., :n, :n])), self.probe
            ), state
        blocks = [padded(x, 0, count * self.block - n).unflatten(2, (count, self.block)) for x in (q, k, v)]
        lengths = q.new_full((1,), n, dtype=torch.long) if visible.lengths is None else visible.lengths
        ends = [x.take_along_dim(_ends(chosen.last)[..., None, None], 2) for x in blocks]  # the first and the last
        y = by_head(_blocks, *blocks, *ends[1:], chosen.block[..., 5:], self._keep(chosen, lengths))
        wide = dense(ends[0].flatten(2, 3), k, v, visible).unflatten(2, (2, self.block))
        at = torch.arange(count, device=q.device)[:, None, None]
        y = torch.where(at == chosen.last[..., None, None], wide[:, :, 1:], torch.where(at == 0, wide[:, :, :1], y))
        return y.flatten(2, 3)[:, :, :n], state

    def choose(self, count: int, lengths: Tensor | None, device: torch.device) -> Chosen:
        """What depends on a row's own length and not on what it is padded to, so that it reads the same anywhere."""
        at = torch.arange(count, device=device)[:, None]
        last = at[-1:, None, None] if lengths is None else ((lengths - 1) // self.block)[:, None, None, None]
        beside = torch.cat([at - 1, at, at + 1], -1).expand(1, 1, -1, -1)
        ends = _ends(last[..., 0])[:, :, None].expand(-1, -1, count, -1)
        drawn = _drawn(self.heads, count, self.random, self.seed, device)
        others = drawn % (last - 4).clamp(min=1) + 1  # neither the first nor the last, nor the three in the middle
        others = torch.where(others >= at - 1, others + 3, others).masked_fill(last < 5, -1)
        shape = (last.size(0), self.heads, count, -1)
        block = torch.cat([part.expand(shape) for part in (beside, ends, others)], -1)
        again = (block[..., :, None] == block[..., None, :]).tril(-1).any(-1)
        counts = (block >= 0) & (block <= last) & ~again
        return Chosen(block.masked_fill(~counts, 0), counts, last[..., 0])

    def _keep(self, chosen: Chosen, lengths: Tensor) -> Tensor:
        """[B or 1, heads, blocks, 1, K·block]"""
        key = chosen.block[..., None] * self.block + torch.arange(self.block, device=lengths.device)
        keep = (key < lengths[:, None, None, None, None]) & chosen.counts[..., None]
        return keep.flatten(3)[:, :, :, None]


def _blocks(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
    first, second, block, keep = more
    return folded(q, _seen(k, first, block), _seen(v, second, block), keep)


def _seen(x: Tensor, ends: Tensor, block: Tensor) -> Tensor:
    """[B, heads, blocks, S, D], the first and the last of them, and which others [B or 1, heads, blocks, K] -> [B,
    heads, blocks, (5 + K)·S, D]. Only those others are gathered, which is slow."""
    count, size = x.shape[2:4]
    beside = padded(x.flatten(2, 3), size, size).unfold(2, 3 * size, size).mT
    known = ends.flatten(2, 3)[:, :, None].expand(-1, -1, count, -1, -1)
    return torch.cat([beside, known, _taken(x, block)], 3)


def _ends(last: Tensor) -> Tensor:
    """[B, 1, 1] -> [B, 1, 2]: the first block and the last."""
    return torch.cat([torch.zeros_like(last), last], -1)


def _taken(x: Tensor, block: Tensor) -> Tensor:
    """[B, heads, blocks, S, D] and which blocks [B or 1, heads, blocks, K] -> [B, heads, blocks, K·S, D]."""
    b, h, count = x.shape[:3]
    start = torch.arange(b * h, device=x.device).view(b, h, 1, 1) * count
    taken = x.flatten(0, 2).index_select(0, (block + start).flatten())
    return taken.view(b, h, count, -1, x.size(-1))


def _pairs(chosen: Chosen, count: int) -> Tensor:
    """[B or 1, heads, blocks, blocks]: which sees which."""
    at = torch.arange(count, device=chosen.block.device)
    some = ((chosen.block[..., None] == at) & chosen.counts[..., None]).any(-2)
    return some | ((at == 0) | (at == chosen.last))[..., None]


def _drawn(heads: int, blocks: int, random: int, seed: int, device: torch.device) -> Tensor:
    """[heads, blocks, random] whole numbers that look random: each a hash of its place alone, whatever the shape."""
    head, block, number = (torch.arange(n, device=device) for n in (heads, blocks, random))
    mixed = head[:, None, None] * 73856093 ^ block[:, None] * 19349663 ^ number * 83492791 ^ (seed + 1) * 40503
    for factor, shift in ((2654435761, 15), (2246822519, 13), (3266489917, 16)):
        mixed = mixed * factor & 0xFFFFFFFF
        mixed = mixed ^ (mixed >> shift)
    return mixed


def _bias(like: Tensor, hidden: Tensor) -> Tensor:
    return like.new_zeros(()).masked_fill(hidden, float("-inf"))
