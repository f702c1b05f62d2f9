"""Gradient norms through time and through the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.layers import Layer
from seqloom.parts.visibility import flip

PARTS = {0: "state", 1: "cell"}


class Flow(NamedTuple):
    """|∂loss/∂state| at every step, of one tensor of a layer's state."""

    layer: str
    direction: int  # 0: forward, 1: backward
    part: str  # "state" is h, "cell" the c of an LSTM; further ones of a user's own cell are "2", "3" …
    norms: Tensor  # [R, T], steps in the order of the text


def gradient_norms(model: nn.Module, loss: Callable[[], Tensor], lengths: Tensor | None = None) -> list[Flow]:
    """|∂loss/∂h_t| for every step and every recurrent layer, first to last (Bengio et al. 1994,
    https://doi.org/10.1109/72.279181; Pascanu et al. 2013, section 2, https://arxiv.org/abs/1211.5063).

    `loss` runs the model and returns one number, for instance the loss at the last position: then the norms tell how
    much of its gradient reaches each step. The plain twins run; gradients of parameters do not change. `lengths`: as in
    `gates`.
    """
    layers = {name: part for name, part in model.named_modules() if isinstance(part, Layer)}
    if not layers:
        raise SeqloomError("this model has no recurrent layer, so no gradient goes back through its time")
    states: dict[Any, list[tuple[Tensor, ...]]] = {cell: [] for layer in layers.values() for cell in layer.cells}

    def collect(cell: Any, inputs: Any, result: Any) -> None:
        states[cell].append(result[0][: cell.parts])

    hooks = [cell.register_forward_hook(collect) for cell in states]
    try:
        with watch(model), torch.enable_grad():
            total = loss()
    finally:
        for hook in hooks:
            hook.remove()
    return [
        Flow(name, direction, PARTS.get(part, str(part)), _norms(total, over_time, direction, lengths))
        for name, layer in layers.items()
        for direction, cell in enumerate(_cells(layer))
        for part, over_time in enumerate(zip(*states[cell], strict=True))
    ]


def _cells(layer: Layer) -> list[Cell]:
    return list(layer.cells)  # pyright: ignore[reportReturnType]


def _norms(total: Tensor, states: tuple[Tensor, ...], direction: int, lengths: Tensor | None) -> Tensor:
    grads = torch.autograd.grad(total, states, retain_graph=True, allow_unused=True)
    filled = [torch.zeros_like(h) if grad is None else grad for h, grad in zip(states, grads, strict=True)]
    norms = torch.stack(filled, 1).norm(dim=-1)
    return flip(norms[:, :, None], lengths)[:, :, 0] if direction else norms
