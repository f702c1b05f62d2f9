"""How much of a gradient is left on its way back through time and down through the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.recurrent import Layer
from seqloom.parts.visibility import flip

PARTS = {0: "state", 1: "cell"}


class Flow(NamedTuple):
    """Of one tensor of a layer's state, the length of ∂loss/∂state at every step."""

    layer: str
    direction: int  # 0 reads from the first place on, 1 from the last
    part: str  # "state" is h, "cell" the c of an LSTM; further ones of a user's own cell by number, from "2" on
    norms: Tensor  # [R, T], steps in the order of the text


def gradient_norms(model: nn.Module, loss: Callable[[], Tensor], lengths: Tensor | None = None) -> list[Flow]:
    """|∂loss/∂h_t| for every step and every recurrent layer, first to last (Bengio et al. 1994,
    https://doi.org/10.1109/72.279181; Pascanu et al. 2013, section 2, https://arxiv.org/abs/1211.5063).

    `loss` runs the model and gives one number, for instance the loss at the last place: then the norms say how much of
    it comes through each step. The plain twins run; gradients of parameters stay as they were. `lengths`: as in
    `gates`.
    """
    layers = {name: part for name, part in model.named_modules() if isinstance(part, Layer)}
    if not layers:
        raise SeqloomError("this model has no recurrent layer, so no gradient goes back through its time")
    states: dict[Any, list[tuple[Tensor, ...]]] = {cell: [] for layer in layers.values() for cell in layer.cells}

    def note(cell: Any, given: Any, result: Any) -> None:
        states[cell].append(result[0][: cell.parts])

    hooks = [cell.register_forward_hook(note) for cell in states]
    try:
        with watch(model), torch.enable_grad():
            total = loss()
    finally:
        for hook in hooks:
            hook.remove()
    return [
        Flow(name, direction, PARTS.get(part, str(part)), _norms(total, several, direction, lengths))
        for name, layer in layers.items()
        for direction, cell in enumerate(_cells(layer))
        for part, several in enumerate(zip(*states[cell], strict=True))
    ]


def _cells(layer: Layer) -> list[Cell]:
    return list(layer.cells)  # pyright: ignore[reportReturnType]


def _norms(total: Tensor, states: tuple[Tensor, ...], direction: int, lengths: Tensor | None) -> Tensor:
    slopes = torch.autograd.grad(total, states, retain_graph=True, allow_unused=True)
    known = [torch.zeros_like(h) if slope is None else slope for h, slope in zip(states, slopes, strict=True)]
    norms = torch.stack(known, 1).norm(dim=-1)
    return flip(norms[:, :, None], lengths)[:, :, 0] if direction else norms
