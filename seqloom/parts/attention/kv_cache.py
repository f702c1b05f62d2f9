"""Keys and values that attention keeps from step to step."""

from __future__ import annotations

from copy import copy

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

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add [R, heads, T, head_dim]; returns all so far, [R, heads, used, head_dim]."""
        start, self.used = self.used, self.used + k.size(2)
        if self.room is None and self.keys is None:
            self.keys, self.values = k, v
            return k, v
        self.keys, self.values = self._write(self.keys, start, k), self._write(self.values, start, v)
        return self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used)

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Cache:
        other = copy(self)
        if self.keys is not None and self.values is not None:
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
