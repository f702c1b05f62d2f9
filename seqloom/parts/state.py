"""What a layer remembers between steps: nested tuples of tensors with rows first, or objects with their own `pick`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

FIRST = 128  # steps that a cache with more room begins with
State = Any  # Tensor | None | tuple[State, ...] | an object with .pick(rows, sentences)


def pick(state: State, rows: Tensor, sentences: Tensor | None = None) -> State:
    """Take, repeat or reorder rows: row i of the result is row rows[i]. Without `sentences` no sentence leaves: rows
    stay among those of their own, which spares copies where sentences are what memory is kept by."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if hasattr(state, "pick"):
        return state.pick(rows, sentences)
    if not isinstance(state, tuple):
        return state
    picked = [pick(part, rows, sentences) for part in state]
    return type(state)(*picked) if hasattr(state, "_fields") else tuple(picked)


def join(states: Sequence[State]) -> State:
    """Nested tuples of tensors, alike but for their rows, one below the other: what `pick` took apart."""
    first = states[0]
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    return None if first is None else tuple(join(parts) for parts in zip(*states, strict=True))


def flatten(state: State) -> tuple[list[Tensor], Any]:
    """The tensors of nested tuples, and a layout that JSON can hold: a number for each, lists for tuples."""
    tensors: list[Tensor] = []

    def place(part: State) -> Any:
        if part is None:
            return None
        if isinstance(part, Tensor):
            tensors.append(part)
            return len(tensors) - 1
        return [place(inner) for inner in part]

    return tensors, place(state)


def rebuild(layout: Any, tensors: Mapping[int, Tensor]) -> State:
    """The nested tuples that `flatten` took apart."""
    if layout is None:
        return None
    return tensors[layout] if isinstance(layout, int) else tuple(rebuild(inner, tensors) for inner in layout)


class Cache:
    """Keys and values of the steps already taken, [R, heads, used, head_dim].

    With `room`, the most steps there will be, memory is allocated ahead and written in place; it doubles as it fills.
    Without, the first call just keeps what it is given, so that training pays nothing. A step consumes its cache: use
    the one it returns.
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.used = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.both: Tensor | None = None  # [2, …], where the two lie in one piece of memory
        self.made: Callable[[], tuple[Tensor, Tensor]] | None = None  # both, once somebody asks for them

    def later(self, steps: int, made: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """The first `append`, of what is made only if somebody goes on from there: training does not."""
        self.used, self.made = steps, made

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add [R, heads, T, head_dim]; gives everything seen so far, [R, heads, used, head_dim]."""
        self._settle()
        start, self.used = self.used, self.used + k.size(2)
        if self.room is None and self.keys is None:
            self.keys, self.values = k, v
            return k, v
        old, self.keys, self.values = self.keys, self._write(self.keys, start, k), self._write(self.values, start, v)
        self.both = self.both if self.keys is old else None
        return self.keys.narrow(2, 0, self.used), self.values.narrow(2, 0, self.used)

    def join(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """`append` of keys and values in one piece, [2, R, heads, T, head_dim]: one copy in the place of two."""
        self._settle()
        start, self.used = self.used, self.used + new.size(3)
        if self.both is None or self.used > self.both.size(3):
            self.both = new.new_empty(*new.shape[:3], self._size(self.keys), new.size(4))
            for part, old in zip(self.both, (self.keys, self.values), strict=True):
                if old is not None:
                    part[:, :, :start] = old[:, :, :start]
            self.keys, self.values = self.both.unbind(0)
        self.both.narrow(3, start, self.used - start).copy_(new)
        k, v = self.both.narrow(3, 0, self.used).unbind(0)
        return k, v

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Cache:
        self._settle()
        other = copy(self)
        if self.both is not None:
            other.both = self.both.index_select(1, rows)
            other.keys, other.values = other.both.unbind(0)
        elif self.keys is not None and self.values is not None:
            other.keys, other.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        return other

    def _settle(self) -> None:
        if self.made is not None:
            (self.keys, self.values), self.made = self.made(), None

    def _write(self, memory: Tensor | None, start: int, new: Tensor) -> Tensor:
        if memory is None or self.used > memory.size(2):
            larger = new.new_empty(new.size(0), new.size(1), self._size(memory), new.size(3))
            if memory is not None:
                larger[:, :, :start] = memory[:, :, :start]
            memory = larger
        memory.narrow(2, start, self.used - start).copy_(new)
        return memory

    def _size(self, memory: Tensor | None) -> int:
        """Steps to make room for."""
        have = 0 if memory is None else memory.size(2)
        return self.used if self.room is None else max(self.used, min(self.room, max(FIRST, 2 * have)))


def fresh(cache: Cache | None) -> bool:
    """Whether nothing was read before and, as in training, probably nothing will be after."""
    unread = type(cache) is Cache and cache.used == 0 and cache.room is None
    return cache is None or (unread and torch.is_grad_enabled())


class Kept(NamedTuple):
    """What a mixer keeps that has no cache: tensors with rows first, none before the first step."""

    used: int = 0  # steps taken
    parts: tuple[Tensor, ...] = ()


class Branches:
    """Keys and values of hypotheses that branch, [B, heads, steps·width, head_dim] a layer: `width` new ones of each
    sentence at every step, side by side. None is ever copied: `seen` says which ones a hypothesis descends from, and
    to pick hypotheses is to pick its rows. A step consumes it, as it does a cache.
    """

    widest = 16  # each looks at all of its sentence's: beyond some width that costs more than copies do

    def __init__(self, layers: int, room: int | None, width: int) -> None:
        self.caches = tuple(Cache(None if room is None else room * width) for _ in range(layers))
        self.width = width
        self.steps = 0
        self.own: Tensor | None = None  # [R, width]: every hypothesis sees the one it adds
        self.seen: Tensor | None = None  # [R, steps·width], added to the scores: 0 where it may look, else −inf
        self.lent = False  # another goes on in the same memory

    def grow(self, like: Tensor) -> Tensor | None:
        """One more step of the hypotheses `like` [B, width, ...]: what each of them sees, [B, 1, width, slots]; None:
        all there is."""
        sentences = like.size(0)
        self.steps += 1
        if self.lent:
            everything = torch.arange(sentences, device=like.device)
            self.caches, self.lent = tuple(cache.pick(everything) for cache in self.caches), False
        if self.width == 1:
            return None
        if self.own is None:
            diagonal = like.new_full((self.width, self.width), float("-inf")).fill_diagonal_(0.0)
            self.own = diagonal.repeat(sentences, 1)
        own = self.own[: sentences * self.width]
        self.seen = own if self.seen is None else torch.cat([self.seen, own], 1)
        return self.seen.view(sentences, 1, self.width, -1)

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Branches:
        other = copy(self)
        if sentences is None and not self.lent:
            self.lent, other.caches = True, tuple(map(copy, self.caches))
        else:
            groups = rows[:: self.width] // self.width
            other.caches, other.lent = tuple(cache.pick(groups) for cache in self.caches), False
        other.seen = None if self.seen is None else self.seen.index_select(0, rows)
        return other


class Decoding(NamedTuple):
    """Where a decoder stands: what it has read and what it has written."""

    context: State  # one row per sentence, projected once; hypotheses are extra queries, so it is never repeated
    rows: State  # one row per hypothesis

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Decoding:
        """Keep these hypotheses; with `sentences`, drop the finished ones from what was read as well."""
        context = self.context if sentences is None else pick(self.context, sentences)
        return Decoding(context, pick(self.rows, rows, sentences))
