"""The passes of a training with torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.fast.residual_norm.gpu_blocks import COMPILED, forward_before_add
from seqloom.parts.attention.attend import Memory
from seqloom.parts.positions.position import AttentionPosition
from seqloom.parts.state import State
from seqloom.parts.transformer.block import Block
from seqloom.parts.visibility import Visibility
from seqloom.training.forward_backward import ForwardBackward
from seqloom.training.objectives.teacher_forcing import Loss
from seqloom.training.settings import Training


class CompiledForwardBackward(ForwardBackward):
    """Compiles blocks, not the model, where the settings ask for it: equal blocks share one program, which compiles
    much faster."""

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        super().__init__(objective, settings, device)
        self.blocks = [part for part in objective.modules() if isinstance(part, Block)] if settings.compile else []
        functions = {"forward": _forward, COMPILED: forward_before_add} if self.blocks else {}
        self.compiled = {name: torch.compile(function) for name, function in functions.items()}
        self.run = torch.compile(objective) if settings.compile and not self.blocks else objective

    def forward(self, batch: Any, state: State) -> Loss:
        with self._compiled_blocks():
            return self.run(batch) if state is None else self.run(batch, state)

    @contextmanager
    def _compiled_blocks(self) -> Iterator[None]:
        """Only within these passes: decoding and inspection run the eager module."""
        for block in self.blocks:
            for name, compiled in self.compiled.items():
                setattr(block, name, partial(compiled, block))
        try:
            yield
        finally:
            for block in self.blocks:
                for name in self.compiled:
                    delattr(block, name)


def _forward(
    block: Block,
    x: Tensor,
    visible: Visibility,
    state: State = None,
    position: AttentionPosition | None = None,
    memory: tuple[Memory, Visibility] | None = None,
) -> tuple[Tensor, State]:
    """The forward pass of a block, with a code object of its own: compiled programs are kept, and counted, for each."""
    return Block.forward(block, x, visible, state, position, memory)
