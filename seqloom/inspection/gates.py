"""What recurrent layers do over time: their gates and states, and where those with a tape look back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.probe import watch
from seqloom.parts.recurrent.lookback_cells import LookBack
from seqloom.parts.recurrent.recurrent import Layer
from seqloom.parts.visibility import flip


@dataclass(frozen=True, eq=False)
class Gates:
    """One layer in one direction: what its cell's `names` say (of an LSTM `input`, `forget` …), each [R, T, dim]."""

    layer: str
    direction: int  # 0 reads from the first place on, 1 from the last
    values: dict[str, Tensor]


@torch.no_grad()
def gates(model: nn.Module, once: Callable[[], Any], lengths: Tensor | None = None) -> list[Gates]:
    """Gates and states of every recurrent layer while `once` does something with the model; the plain twins run.

    Steps stand in the order of the text in both directions. `lengths` [R]: the real places of rows that were read both
    ways, where they are padded after.
    """
    model.eval()
    with watch(model) as seen:
        once()
    found = []
    for name, part in model.named_modules():
        if isinstance(part, Layer) and seen[name]:
            for direction, cell in enumerate(part.cells):
                report = torch.cat(seen[name][direction :: len(part.cells)], 1)
                if direction:
                    report = flip(report.flatten(2), lengths).unflatten(2, report.shape[2:])
                names: tuple[str, ...] = cell.names  # pyright: ignore[reportAssignmentType]
                found.append(Gates(name, direction, dict(zip(names, report.unbind(2), strict=True))))
    return found


@torch.no_grad()
def looked_back(model: nn.Module, once: Callable[[], Any]) -> dict[str, Tensor]:
    """Where every cell with a tape looked while `once` ran, [R, T, T], by the cell's name, in the order it read.

    Row t is step t and column s the entry that was written s-th: of an attentive RNN the state of step s, of an LSTMN
    the state before step s, so that its column 0 is what it started from. An AttentionMap draws one row's.
    """
    model.eval()
    with watch(model) as seen:
        once()
    parts = {name: part for name, part in model.named_modules() if isinstance(part, LookBack) and seen[name]}
    return {name.removesuffix(".look"): _square(seen[name]) for name in parts}


def _square(reports: list[Tensor]) -> Tensor:
    """[R, 1, S] of each step, of which a window may have cut the head -> [R, T, T]."""
    steps = len(reports)
    rows = [F.pad(one, (t + 1 - one.size(2), steps - t - 1)) for t, one in enumerate(reports)]
    return torch.cat(rows, 1)
