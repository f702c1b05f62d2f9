"""One step of a stack of recurrent layers with as few operations as it takes: the twin of `Recurrent` in decoding,
where no gradient is wanted and nobody watches. Its matrices are packed for the rows of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fast.linear.cpu import ready_part
from seqloom.parts.recurrent.base_cell import Cell
from seqloom.parts.recurrent.layers import Layer, Recurrent, StackState


class LeanStack:
    """The layers with their matrices at hand, for steps of about `rows` rows."""

    def __init__(self, recurrent: Recurrent, rows: int) -> None:
        self.probed: list[Layer] = list(recurrent.layers)  # pyright: ignore
        self.layers = [_LeanLayer(layer.cells[0], rows) for layer in self.probed]  # pyright: ignore

    @classmethod
    def of(cls, recurrent: Recurrent, rows: int) -> LeanStack | None:
        """None where the plain path has to run: gradients, dropout, cells whose gates are no sum of W x + b and U h, or
        hooks on the calls of modules."""
        training = torch.is_grad_enabled() or recurrent.training
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in recurrent.modules())
        cells = [cell for layer in recurrent.layers for cell in layer.cells]  # pyright: ignore
        usual = len(cells) == len(recurrent.layers) and all(map(_sums, cells))
        here = cells[0].bias.device.type == "cpu"
        return cls(recurrent, rows) if here and usual and not training and not hooked else None

    @property
    def watched(self) -> bool:
        return any(layer.probe is not None for layer in self.probed)

    def __call__(self, x: Tensor, stack: StackState) -> StackState:
        """[R, input] and the state of every layer -> the states after it."""
        states = []
        for layer, state in zip(self.layers, stack, strict=True):
            states.append(layer.act(layer.inner.onto(state[0], layer.input(x)), state))
            x = states[-1][0]
        return tuple(states)


class _LeanLayer:
    def __init__(self, cell: Cell, rows: int) -> None:
        self.input = ready_part(cell, "weight", cell.weight, cell.bias, rows)
        self.inner = ready_part(cell, "recurrent", cell.recurrent, None, rows)
        self.act = cell.act


def _sums(cell: Cell) -> bool:
    return cell.affine and not cell.stepwise and type(cell).act is not Cell.act
