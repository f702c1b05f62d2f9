"""Recurrent layers over time: gates, states, and the attention weights of self-attention cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.probe import watch
from seqloom.parts.recurrent.layers import Layer
from seqloom.parts.recurrent.self_attention_cells import HistoryAttention
from seqloom.parts.visibility import flip


@dataclass(frozen=True, eq=False)
class Gates:
    """One layer in one direction: its cell's activations by name (of an LSTM `input`, `forget` …), each [R, T, dim]."""

    layer: str
    direction: int  # 0: forward, 1: backward
    values: dict[str, Tensor]


@torch.no_grad()
def gates(model: nn.Module, run: Callable[[], Any], lengths: Tensor | None = None) -> list[Gates]:
    """Gates and states of every recurrent layer while `run` runs the model; the plain twins run.

    Steps are in the order of the text in both directions. `lengths` [R]: needed for two directions if rows are padded.
    """
    model.eval()
    with watch(model) as seen:
        run()
    layers = []
    for name, part in model.named_modules():
        if isinstance(part, Layer) and seen[name]:
            for direction, cell in enumerate(part.cells):
                report = torch.cat(seen[name][direction :: len(part.cells)], 1)
                if direction:
                    report = flip(report.flatten(2), lengths).unflatten(2, report.shape[2:])
                names: tuple[str, ...] = cell.names  # pyright: ignore[reportAssignmentType]
                layers.append(Gates(name, direction, dict(zip(names, report.unbind(2), strict=True))))
    return layers


@torch.no_grad()
def self_attention_weights(model: nn.Module, run: Callable[[], Any]) -> dict[str, Tensor]:
    """The attention weights of every self-attention cell while `run` runs the model, [R, T, T], by the cell's name.

    Row t is step t, in the order that the cell read; column s is the s-th entry of the history: of an attentive RNN the
    state of step s, of an LSTMN the state before step s, so that column 0 is its first state. AttentionMap draws a row.
    """
    model.eval()
    with watch(model) as seen:
        run()
    parts = {name: part for name, part in model.named_modules() if isinstance(part, HistoryAttention) and seen[name]}
    return {name.removesuffix(".look"): _square(seen[name]) for name in parts}


def _square(reports: list[Tensor]) -> Tensor:
    """[R, 1, S] of each step, of which a window may have cut the first entries -> [R, T, T]."""
    steps = len(reports)
    rows = [F.pad(one, (t + 1 - one.size(2), steps - t - 1)) for t, one in enumerate(reports)]
    return torch.cat(rows, 1)
