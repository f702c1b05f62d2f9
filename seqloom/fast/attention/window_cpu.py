"""Attention within a window on a CPU: blocks of queries over slices of keys where they lie. None is copied for each
block that sees it, and weights are computed anew on the way back, so that what is at work stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.parts.mixers.efficient_attention import pad_time
from seqloom.parts.visibility import Visibility

BLOCK = 64  # queries in a block: a product of this size a thread does by itself, and so has in its cache what it made
GROUP = 32  # blocks at a time
LONG = 2048  # places from which on this is quicker than copies of the keys for all blocks at once
LEAST = -1e30  # added to a score that is not seen; finite, for the spare queries of the last block see nothing


def worth(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> bool:
    """[B, heads, T, D] each: whether to go this way."""
    here = q.device.type == "cpu" and q.dtype == k.dtype == v.dtype and not torch.compiler.is_compiling()
    return here and q.size(2) >= LONG and (visible.window or 0) >= BLOCK


def sliced(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """softmax(q·kᵀ) v over the window of `visible`, and over the `first` places whatever their distance; all
    [B, heads, T, D]. Padded queries get zeros where lengths are obeyed: where a place sees what comes after."""
    n, exact = q.size(2), torch.promote_types(q.dtype, torch.float32)
    lengths = [n] * q.size(0) if visible.causal or visible.lengths is None else visible.lengths.tolist()
    sight = Sight(visible.window or 1, visible.causal, min(first, n))
    with torch.autocast("cpu", enabled=False):
        return _Sliced.apply(q.to(exact), k.to(exact), v.to(exact), lengths, sight).to(q.dtype)  # pyright: ignore


class Sight(NamedTuple):
    window: int
    causal: bool
    first: int

    @property
    def behind(self) -> int:
        return -(-(self.window - 1) // BLOCK)

    @property
    def ahead(self) -> int:
        """How many blocks of keys beside its own a block of queries sees."""
        return 0 if self.causal else self.behind

    @property
    def size(self) -> int:
        return (self.behind + 1 + self.ahead) * BLOCK

    def band(self, like: Tensor) -> Tensor:
        """[BLOCK, size]: what is added to the scores of any block."""
        far = torch.arange(BLOCK)[:, None] + self.behind * BLOCK - torch.arange(self.size)
        seen = (far < self.window) & (far > (-1 if self.causal else -self.window))
        return torch.where(seen, 0.0, LEAST).to(like.dtype)


class _Row:
    """Queries, keys and values of one row, [heads, T, D] each, in blocks and in the slices that these see."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, band: Tensor) -> None:
        self.n, self.first = q.size(1), min(sight.first, q.size(1))
        self.sight, self.band = sight, band
        self.count = blocks(self.n)
        self.q = self.cut(q)  # [heads, N, BLOCK, D]
        around = (sight.behind * BLOCK, (self.count + sight.ahead) * BLOCK - self.n)
        self.k, self.v = (pad_time(x, *around).unfold(1, sight.size, BLOCK) for x in (k, v))  # [heads, N, D, size]
        self.known = [x[:, : self.first].mT for x in (k, v)]  # [heads, D, first]

    def cut(self, x: Tensor) -> Tensor:
        return pad_time(x, 0, self.count * BLOCK - self.n).unflatten(1, (self.count, BLOCK))

    def groups(self, step: int = 1) -> Iterator[tuple[int, slice]]:
        """Some blocks of a head after the others, of every `step` one."""
        for head in range(self.q.size(0)):
            for start in range(min(step, self.count)):
                for i in range(start, self.count, step * GROUP):
                    yield head, slice(i, min(i + step * GROUP, self.count), step)

    def weights(self, head: int, some: slice) -> Tensor:
        """[G, BLOCK, first + size]"""
        scores = _products(self.q[head, some], self.k[head, some], self.known[0][head])
        near = scores[..., self.first :]
        near += self.band
        for number, block in enumerate(range(some.start, some.stop, some.step)):
            begin = (block - self.sight.behind) * BLOCK
            if begin < self.first:
                near[number, :, : self.first - begin] = LEAST
            if begin + self.sight.size > self.n:
                near[number, :, self.n - begin :] = LEAST
            if self.sight.causal and block * BLOCK < self.first:
                at = torch.arange(block * BLOCK, (block + 1) * BLOCK)
                scores[number, :, : self.first].masked_fill_(torch.arange(self.first) > at[:, None], LEAST)
        return scores.softmax(-1)


def blocks(n: int) -> int:
    return -(-n // BLOCK)


def _products(x: Tensor, keys: Tensor, known: Tensor) -> Tensor:
    """x [G, BLOCK, D] with keys [G, D, size] and [D, first] -> [G, BLOCK, first + size]."""
    near = torch.bmm(x, keys)
    return torch.cat([x @ known, near], -1) if known.size(-1) else near


def _mixed(weights: Tensor, values: Tensor, known: Tensor) -> Tensor:
    """weights [G, BLOCK, first + size], values [G, D, size] and [D, first] -> [G, BLOCK, D]."""
    first = known.size(-1)
    near = torch.bmm(weights[..., first:], values.mT)
    return near.add_(weights[..., :first] @ known.mT) if first else near


class _Sliced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: list[int], sight: Sight) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.lengths, ctx.sight, band = lengths, sight, sight.band(q)
        y = _room(v)
        for number, n in enumerate(lengths):
            row = _Row(q[number, :, :n], k[number, :, :n], v[number, :, :n], sight, band)
            said = y[number].unflatten(1, (-1, BLOCK))
            for head, some in row.groups():
                said[head, some] = _mixed(row.weights(head, some), row.v[head, some], row.known[1][head])
            y[number, :, n:] = 0
        return y[:, :, : q.size(2)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (q, k, v), sight = ctx.saved_tensors, ctx.sight
        of_q, of_k, of_v, band = _room(q), _Sums(k, sight), _Sums(v, sight), sight.band(q)
        for number, n in enumerate(ctx.lengths):
            row = _Row(q[number, :, :n], k[number, :, :n], v[number, :, :n], sight, band)
            sent, found = row.cut(slope[number, :, :n]), of_q[number].unflatten(1, (-1, BLOCK))
            # So many apart that no two of a group see the same key
            for head, some in row.groups(sight.size // BLOCK):
                asking, given, weights = row.q[head, some], sent[head, some], row.weights(head, some)
                of_v.add((number, head), some, weights, given)
                by_weights = _products(given, row.v[head, some], row.known[1][head])
                by_scores = torch.ops.aten._softmax_backward_data(by_weights, weights, -1, weights.dtype)
                of_k.add((number, head), some, by_scores, asking)
                found[head, some] = _mixed(by_scores, row.k[head, some], row.known[0][head])
            of_q[number, :, n:] = 0
        return of_q[:, :, : slope.size(2)], of_k.whole(), of_v.whole(), None, None


def _room(x: Tensor) -> Tensor:
    """For [B, heads, T, D] in whole blocks."""
    return x.new_empty(*x.shape[:2], blocks(x.size(2)) * BLOCK, x.size(3))


class _Sums:
    """The gradient of keys or values [B, heads, T, D], added up block by block."""

    def __init__(self, x: Tensor, sight: Sight) -> None:
        self.sight, self.n = sight, x.size(2)
        count = blocks(self.n) + 2 * sight.size // BLOCK
        self.sums = x.new_zeros(*x.shape[:2], count, BLOCK, x.size(3))
        self.known = x.new_zeros(*x.shape[:2], sight.first, x.size(3))

    def add(self, at: tuple[int, int], some: slice, of: Tensor, x: Tensor) -> None:
        """ofᵀ x: [G, BLOCK, first + size] and [G, BLOCK, D]."""
        first = of.size(-1) - self.sight.size
        seen = self.sums[at][some.start : some.start + len(x) * some.step].view(len(x), -1, x.size(-1))
        seen.baddbmm_(of[..., first:].mT, x)
        if first:
            self.known[at][:first] += of[..., :first].flatten(0, 1).mT @ x.flatten(0, 1)

    def whole(self) -> Tensor:
        start = self.sight.behind * BLOCK
        found = self.sums.flatten(2, 3)[:, :, start : start + self.n]
        found[:, :, : self.sight.first] += self.known
        return found
