"""Keys and values that attention keeps from step to step, of one sequence a row or of all hypotheses of a beam."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

INITIAL_STEPS = 128  # that a cache with more room allocates first


class Cache:
    """Keys and values of the previous steps, [R, heads, used, head_dim].

    With `room`, the maximum number of steps, memory is allocated ahead, doubled when full, and written in place.
    Without, the first call keeps its arguments, so that training copies nothing. A step consumes its cache: use the one
    that it returns.
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.used = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.stacked: Tensor | None = None  # [2, …], if keys and values share one tensor

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add [R, heads, T, head_dim]; returns all so far, [R, heads, used, head_dim]."""
        start, self.used = self.used, self.used + k.size(2)
        if self.room is None and self.keys is None:
            self.keys, self.values = k, v
            return k, v
        old, self.keys, self.values = self.keys, self._write(self.keys, start, k), self._write(self.values, start, v)
        self.stacked = self.stacked if self.keys is old else None
        return self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used)

    def append_stacked(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """`append` of stacked keys and values, [2, R, heads, T, head_dim]: one copy instead of two."""
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
        other = copy(self)
        if self.stacked is not None:
            other.stacked = self.stacked.index_select(1, rows)
            other.keys, other.values = other.stacked.unbind(0)
        elif self.keys is not None and self.values is not None:
            other.keys, other.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        return other

    def _write(self, memory: Tensor | None, start: int, new: Tensor) -> Tensor:
        if memory is None or self.used > memory.size(2):
            larger = new.new_empty(new.size(0), new.size(1), self._size(memory), new.size(3))
            if memory is not None:
                larger[:, :, :start] = memory[:, :, :start]
            memory = larger
        memory.narrow(2, start, self.used - start).copy_(new)
        return memory

    def _size(self, memory: Tensor | None) -> int:
        """Steps to allocate."""
        allocated = 0 if memory is None else memory.size(2)
        return self.used if self.room is None else max(self.used, min(self.room, max(INITIAL_STEPS, 2 * allocated)))


class BeamCache:
    """Keys and values of the hypotheses of a beam, [B, heads, steps·width, head_dim] a layer: a step adds `width` for
    each sentence. Picking hypotheses copies none of them: `bias` masks what is not of a hypothesis's own past, and only
    its rows are picked. A step consumes it, like a cache.
    """

    max_width = 16  # each hypothesis attends over those of the whole beam: beyond this width copying is cheaper

    def __init__(self, layers: int, room: int | None, width: int) -> None:
        self.caches = tuple(Cache(None if room is None else room * width) for _ in range(layers))
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
