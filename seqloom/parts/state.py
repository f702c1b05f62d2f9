"""What a layer remembers between steps: nested tuples of tensors with rows first, or objects with their own `pick`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

State = Any  # Tensor | None | tuple[State, ...] | an object with .pick(rows)


def pick(state: State, rows: Tensor) -> State:
    """Take, repeat or reorder rows: row i of the result is row rows[i]."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if hasattr(state, "pick"):
        return state.pick(rows)
    if not isinstance(state, tuple):
        return state
    picked = [pick(part, rows) for part in state]
    return type(state)(*picked) if hasattr(state, "_fields") else tuple(picked)


class Cache:
    """Keys and values of the steps already taken, [R, heads, room, head_dim].

    With `room` the memory is allocated once and written in place; without, it grows with each call, and the first call
    just keeps what it is given, so that training pays nothing. A step consumes its cache: use the one it returns.
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.used = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add [R, heads, T, head_dim]; gives everything seen so far, [R, heads, used, head_dim]."""
        start, self.used = self.used, self.used + k.size(2)
        if self.keys is None or self.values is None:
            if self.room is None:
                self.keys, self.values = k, v
                return k, v
            shape = (k.size(0), k.size(1), max(self.room, self.used), k.size(3))
            self.keys, self.values = k.new_empty(shape), v.new_empty(shape)
        if self.used > self.keys.size(2) or self.room is None:
            self.keys, self.values = _grow(self.keys, start, k), _grow(self.values, start, v)
        else:
            self.keys[:, :, start : self.used] = k
            self.values[:, :, start : self.used] = v
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def pick(self, rows: Tensor) -> Cache:
        other = Cache(self.room)
        other.used = self.used
        if self.keys is not None and self.values is not None:
            other.keys, other.values = self._taken(self.keys, rows), self._taken(self.values, rows)
        return other

    def _taken(self, memory: Tensor, rows: Tensor) -> Tensor:
        """Only the used part is copied: a beam reorders at every step, and most of the room is still empty."""
        if self.room is None:
            return memory.index_select(0, rows)
        taken = memory.new_empty(len(rows), *memory.shape[1:])
        taken[:, :, : self.used] = memory[:, :, : self.used].index_select(0, rows)
        return taken


def _grow(memory: Tensor, used: int, new: Tensor) -> Tensor:
    return torch.cat([memory[:, :, :used], new], 2)


class Decoding(NamedTuple):
    """Where a decoder stands: what it has read and what it has written."""

    context: State  # one row per sentence, projected once; hypotheses are extra queries, so it is never repeated
    rows: State  # one row per hypothesis

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Decoding:
        """Keep these hypotheses; with `sentences`, drop the finished ones from what was read as well."""
        return Decoding(self.context if sentences is None else pick(self.context, sentences), pick(self.rows, rows))
