"""Settings in which a part is tested: it takes steps, it reads padded rows, or it is simply called.

All numbers are drawn on the CPU in float64 and then cast, so that a maker gives the same part everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.parts.state import Decoding, State, pick
from seqloom.parts.visibility import keep
from seqloom.training.distributed.sharding import saved_buffers


@dataclass(frozen=True)
class Stepping:
    """Takes steps from a state: `begin(width, room)` has `width` rows a sentence; `step(x, state)` -> (y, state)."""

    module: nn.Module
    begin: Callable[[int, int | None], State]
    step: Callable[[Tensor, State], tuple[Tensor, State]]
    draw: Callable[[int, int], Tensor]  # rows, steps -> inputs, the same at each call
    rows: int = 3
    steps: int = 6

    def outputs(self) -> list[Tensor]:
        y, state = self.step(self.draw(self.rows, self.steps), self.begin(1, None))
        return [y, self.step(self.draw(self.rows, 1), state)[0]]

    def inputs(self) -> list[Tensor]:
        return [self.draw(self.rows, self.steps)]


@dataclass(frozen=True)
class Reading:
    """Reads rows padded after: `read(x, lengths)` -> its output at each position, and its output for each row."""

    module: nn.Module
    read: Callable[[Tensor, Tensor | None], tuple[list[Tensor], list[Tensor]]]
    x: Tensor  # [B, S, D]
    lengths: Tensor  # [B]

    def outputs(self) -> list[Tensor]:
        return real(*self.read(self.x, self.lengths), self.lengths)

    def inputs(self) -> list[Tensor]:
        return [self.x]


@dataclass(frozen=True)
class Calling:
    """Is called with tensors: `call(*arguments)` -> its outputs."""

    module: nn.Module
    call: Callable[..., list[Tensor]]
    arguments: tuple[Tensor, ...]

    def outputs(self) -> list[Tensor]:
        return self.call(*self.arguments)

    def inputs(self) -> list[Tensor]:
        return list(self.arguments)


Subject = Stepping | Reading | Calling
Maker = Callable[..., Any]  # (seed=0, dtype=torch.float64, device="cpu") -> Subject


def real(places: list[Tensor], rows: list[Tensor], lengths: Tensor) -> list[Tensor]:
    """The outputs without those at padded positions."""
    return [*(place[keep(lengths, place.size(1))] for place in places), *rows]


def pieces(steps: int) -> list[tuple[int, ...]]:
    """Ways to take so many steps: one at a time, two and the rest, and so on."""
    ways = [(1,) * steps, (2, steps - 2), (1, steps // 2, steps - 1 - steps // 2), (steps - 1, 1)]
    return list(dict.fromkeys(tuple(n for n in way if n) for way in ways if min(way) >= 0))


def in_pieces(subject: Stepping, x: Tensor, sizes: tuple[int, ...], room: int | None) -> tuple[Tensor, State]:
    state, found = subject.begin(1, room), []
    for piece in x.split(sizes, 1):
        y, state = subject.step(piece, state)
        found.append(y)
    return torch.cat(found, 1), state


def picked(state: State, rows: Tensor, sentences: Tensor | None) -> State:
    return state.pick(rows, sentences) if isinstance(state, Decoding) else pick(state, rows)


def tensors(state: State) -> Iterator[Tensor]:
    """Every tensor in nested tuples."""
    if isinstance(state, Tensor):
        yield state
    for part in state if isinstance(state, tuple) else ():
        yield from tensors(part)


def shake(module: nn.Module, seed: int) -> nn.Module:
    """Parameters that are far from their start, so that no bias is zero and no norm is plain."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.8 * parameter + 0.25 * noise)
        for _, statistic in saved_buffers(module):
            statistic.copy_(0.5 + torch.rand(statistic.shape, generator=generator, dtype=torch.float64))
    return module.eval()


def drawn(*shape: int, seed: int = 11) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
