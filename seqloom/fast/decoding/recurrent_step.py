"""One decoding step of recurrent layers with few operations and prepared weights. Equals `Recurrent` without gradients
and probes."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fast.linear.cpu import prepare_weight
from seqloom.fast.recurrent.pointwise import act_of
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.layers import Layer, Recurrent, StackState


class RecurrentStackStep:
    """The layers with prepared weights, for steps of about `rows` rows."""

    def __init__(self, recurrent: Recurrent, rows: int) -> None:
        self.recurrent_layers: list[Layer] = list(recurrent.layers)  # pyright: ignore
        self.layers = [_LayerStep(layer.cells[0], rows) for layer in self.recurrent_layers]  # pyright: ignore

    @classmethod
    def of(cls, recurrent: Recurrent, rows: int) -> RecurrentStackStep | None:
        """None where the plain path has to run: gradients, dropout, cells whose gates are not W x + b + U h, hooks on
        modules."""
        training = torch.is_grad_enabled() or recurrent.training
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in recurrent.modules())
        cells: list[Cell] = [cell for layer in recurrent.layers for cell in layer.cells]  # pyright: ignore
        supported = len(cells) == len(recurrent.layers) and all(map(act_of, cells))
        on_cpu = cells[0].bias.device.type == "cpu"
        return cls(recurrent, rows) if on_cpu and supported and not training and not hooked else None

    @property
    def has_probes(self) -> bool:
        return any(layer.probe is not None for layer in self.recurrent_layers)

    def __call__(self, x: Tensor, stack: StackState) -> StackState:
        """[R, input] and the state of every layer -> the states after it."""
        states = []
        for layer, state in zip(self.layers, stack, strict=True):
            gates = layer.recurrent.with_residual(state[0], layer.input(x))
            states.append(layer.act(layer.cell, gates, state))
            x = states[-1][0]
        return tuple(states)


class _LayerStep:
    def __init__(self, cell: Cell, rows: int) -> None:
        act = act_of(cell)
        assert act is not None
        self.cell, self.act = cell, act
        self.input = prepare_weight(cell, "weight", cell.weight, cell.bias, rows)
        self.recurrent = prepare_weight(cell, "recurrent", cell.recurrent, None, rows)
