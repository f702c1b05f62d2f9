"""The state between steps: nested tuples of tensors with rows first, or objects with their own `pick`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = Any  # Tensor | None | tuple[State, ...] | an object with .pick(rows, sentences)


def pick(state: State, rows: Tensor, sentences: Tensor | None = None) -> State:
    """Take, repeat or reorder rows: row i of the result is row rows[i]. Without `sentences` every sentence stays and
    its rows are chosen among its own, so states that are stored by sentence need no copy."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if hasattr(state, "pick"):
        return state.pick(rows, sentences)
    if not isinstance(state, tuple):
        return state
    picked = [pick(part, rows, sentences) for part in state]
    return type(state)(*picked) if hasattr(state, "_fields") else tuple(picked)


def join(states: Sequence[State]) -> State:
    """Concatenate the rows of equally nested tuples of tensors: the inverse of `pick`."""
    first = states[0]
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    return None if first is None else tuple(join(parts) for parts in zip(*states, strict=True))


def flatten(state: State) -> tuple[list[Tensor], Any]:
    """The tensors of nested tuples, and a layout for JSON: the number of each tensor, lists for tuples."""
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
    """The nested tuples: the inverse of `flatten`."""
    if layout is None:
        return None
    return tensors[layout] if isinstance(layout, int) else tuple(rebuild(inner, tensors) for inner in layout)


class MixerState(NamedTuple):
    """The state of a mixer without a cache: tensors with rows first, none before the first step."""

    used: int = 0  # steps taken
    parts: tuple[Tensor, ...] = ()


class Decoding(NamedTuple):
    """The state of a decoder: the source that it has read and its hypotheses."""

    context: State  # a row per sentence, projected once; hypotheses are extra queries, so it is not repeated
    rows: State  # a row per hypothesis

    def pick(self, rows: Tensor, sentences: Tensor | None = None) -> Decoding:
        """Keep these hypotheses; with `sentences`, also only these sentences of the context."""
        context = self.context if sentences is None else pick(self.context, sentences)
        return Decoding(context, pick(self.rows, rows, sentences))
