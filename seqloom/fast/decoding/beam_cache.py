"""The hypotheses of a sentence side by side in one cache: continuing the best of them copies no keys and values."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.positions.position import AttentionPosition


class StackedCache(Cache):
    """A cache whose keys and values share one tensor, [2, R, heads, steps, head_dim], so that a step writes both by one
    copy."""

    def __init__(self, room: int | None = None) -> None:
        super().__init__(room)
        self.stacked: Tensor | None = None  # None before the first step, and after keys and values were written apart

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old, found = self.keys, super().append(k, v)
        self.stacked = self.stacked if self.keys is old else None
        return found

    def append_stacked(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """`append` of stacked keys and values, [2, R, heads, T, head_dim]."""
        start, self.used = self.used, self.used + new.size(3)
        if self.stacked is None or self.used > self.stacked.size(3):
            self.stacked = new.new_empty(*new.shape[:3], self._size(self.keys), new.size(4))
            for part, old in zip(self.stacked, (self.keys, self.values), strict=True):
                if old is not None:
                    part[:, :, :start] = old[:, :, :start]
            self.keys, self.values = self.stacked.unbind(0)
        self.stacked.narrow(3, start, self.used - start).copy_(new)
        k, v = self.stacked.narrow(3, 0, self.used).unbind(0)
        return k, v

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Cache:
        if self.stacked is None:
            return super().pick(rows, sentences)
        other = copy(self)
        other.stacked = self.stacked.index_select(1, rows)
        other.keys, other.values = other.stacked.unbind(0)
        return other


class BeamCache:
    """Keys and values of the hypotheses of a beam, [B, heads, steps·width, head_dim] a layer: a step adds `width` for
    each sentence. Picking hypotheses copies none of them: `bias` masks what is not of a hypothesis's own past, and only
    its rows are picked. A step consumes it, like a cache.
    """

    max_width = 16  # each hypothesis attends over those of the whole beam: beyond this width copying is cheaper

    def __init__(self, layers: int, room: int | None, width: int) -> None:
        self.caches = tuple(StackedCache(None if room is None else room * width) for _ in range(layers))
        self.width = width
        self.steps = 0
        self.own_bias: Tensor | None = None  # [R, width]: a hypothesis sees its own new key
        self.bias: Tensor | None = None  # [R, steps·width], added to the scores: 0 where visible, else −inf
        self.shared = False  # whether another object writes to the same memory

    def add_step(self, like: Tensor) -> Tensor | None:
        """One more step of the hypotheses `like` [B, width, ...]: the bias [B, 1, width, slots], None if all is
        visible."""
        sentences = like.size(0)
        self.steps += 1
        if self.shared:
            everything = torch.arange(sentences, device=like.device)
            self.caches, self.shared = tuple(cache.pick(everything) for cache in self.caches), False
        if self.width == 1:
            return None
        if self.own_bias is None:
            diagonal = like.new_full((self.width, self.width), float("-inf")).fill_diagonal_(0.0)
            self.own_bias = diagonal.repeat(sentences, 1)
        own = self.own_bias[: sentences * self.width]
        self.bias = own if self.bias is None else torch.cat([self.bias, own], 1)
        return self.bias.view(sentences, 1, self.width, -1)

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> BeamCache:
        other = copy(self)
        if sentences is None and not self.shared:
            self.shared, other.caches = True, tuple(map(copy, self.caches))
        else:
            groups = rows[:: self.width] // self.width
            other.caches, other.shared = tuple(cache.pick(groups) for cache in self.caches), False
        other.bias = None if self.bias is None else self.bias.index_select(0, rows)
        return other


class SideBySide(NamedTuple):
    """Several tokens at one position: the hypotheses of a sentence, along the time axis. Keys are those of every
    position up to this one, side by side too."""

    position: AttentionPosition
    index: int

    def rotate(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        q, k = self.position.rotate(q.unsqueeze(-2), k.unsqueeze(-2), self.index)
        return q.squeeze(-2), k.squeeze(-2)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None:
        """[1, heads, 1, s], the same for all tokens at this position."""
        count = self.index + 1
        bias = self.position.bias(heads, 1, count, self.index, True, dtype)
        return None if bias is None else bias[..., None].expand(-1, -1, -1, -1, s // count).flatten(-2)
