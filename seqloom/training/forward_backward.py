"""The forward and the backward pass of one micro-batch, in bfloat16 by autocast where the settings ask for it.

`cuda_graphs.py` has the twin that replays recorded passes on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import AnyBatch
from seqloom.fast.linear.cpu import bf16_supported
from seqloom.fast.triton_common import runtime
from seqloom.parts.state import State
from seqloom.parts.transformer.block import Block
from seqloom.training.objectives.objective import Loss
from seqloom.training.settings import Training


class ForwardBackward:
    """Micro-batch to loss; gradients are accumulated."""

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        self.objective, self.device, self.bf16 = objective, device, uses_bf16(settings, device)
        runtime.prepare(device)
        self.blocks = [part for part in objective.modules() if isinstance(part, Block)] if settings.compile else []
        methods = ("forward", "forward_before_add") if self.blocks else ()
        self.compiled = {name: torch.compile(getattr(Block, name)) for name in methods}
        self.run = torch.compile(objective) if settings.compile and not self.blocks else objective

    def __call__(self, micro_batch: AnyBatch, state: State = None) -> Loss:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16), self._compiled_blocks():
            batch = micro_batch.to(self.device)
            loss = self.run(batch) if state is None else self.run(batch, state)
        self._backward(loss.total)
        return Loss(loss.total.detach(), loss.count, loss.carried)

    def clear_gradients(self) -> None:
        self.objective.zero_grad(set_to_none=True)

    def _backward(self, total: Tensor) -> None:
        total.backward()

    @contextmanager
    def _compiled_blocks(self) -> Iterator[None]:
        """Compile blocks, not the model: equal blocks share one program, which compiles much faster. Only within these
        passes: decoding and inspection run the eager module."""
        for block in self.blocks:
            for name, compiled in self.compiled.items():
                setattr(block, name, MethodType(compiled, block))
        try:
            yield
        finally:
            for block in self.blocks:
                for name in self.compiled:
                    delattr(block, name)

    def release_memory(self) -> None:
        """Free the memory that is held for later passes."""


def uses_bf16(settings: Training, device: torch.device) -> bool:
    """Whether passes run in bfloat16: if requested and not slower than float32 on this device."""
    return settings.precision == "bf16" and bf16_supported(device)
