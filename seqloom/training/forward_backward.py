"""The forward and the backward pass of one micro-batch, in bfloat16 by autocast where the settings ask for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.data.batches.batch_source import AnyBatch
from seqloom.errors import SeqloomError
from seqloom.hardware import bf16_supported
from seqloom.parts.state import State
from seqloom.training.objectives.objective import Loss
from seqloom.training.settings import Training


class ForwardBackward:
    """Micro-batch to loss; gradients are accumulated."""

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        self.objective, self.device, self.bf16 = objective, device, uses_bf16(settings, device)

    def __call__(self, micro_batch: AnyBatch, state: State = None) -> Loss:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.forward(micro_batch.to(self.device), state)
        self.backward(loss.total)
        return Loss(loss.total.detach(), loss.count, loss.carried)

    def forward(self, batch: Any, state: State) -> Loss:
        return self.objective(batch) if state is None else self.objective(batch, state)

    def backward(self, total: Tensor) -> None:
        total.backward()

    def clear_gradients(self) -> None:
        self.objective.zero_grad(set_to_none=True)

    def release_memory(self) -> None:
        """Give memory back that is held for later passes."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


@accelerated
def make_forward_backward(
    objective: nn.Module, settings: Training, device: torch.device, distributed: bool = False
) -> ForwardBackward:
    """The passes of a training, if the settings go with the machine. `distributed`: in several processes."""
    check_settings(objective, settings, device, distributed)
    return ForwardBackward(objective, settings, device)


def check_settings(objective: nn.Module, settings: Training, device: torch.device, distributed: bool) -> None:
    """Raise if the settings do not go with this machine, these processes or this model."""
    if distributed and settings.compile:
        raise SeqloomError("training.compile goes with one process; leave it out, or train in one")
    if settings.cuda_graphs == "on" and not graphs_supported(objective, device, distributed):
        raise SeqloomError(
            "training.cuda_graphs: on needs a CUDA device, one process and no reversible layers; auto does without"
        )


def graphs_supported(objective: nn.Module, device: torch.device, distributed: bool) -> bool:
    """Whether passes can be recorded: a recording would hold the activations that reversible layers avoid."""
    reversible = any(getattr(part, "reversible", False) for part in objective.modules())
    return device.type == "cuda" and not distributed and not reversible


def uses_bf16(settings: Training, device: torch.device) -> bool:
    """Whether passes run in bfloat16: if requested and worthwhile on this device."""
    return settings.precision == "bf16" and bf16_supported(device)
