"""The passes of a training as fast as the machine allows: with our kernels, torch.compile and CUDA graphs."""

from __future__ import annotations

import torch
from torch import nn

from seqloom.acceleration import twin_of
from seqloom.fast.cuda_graphs.compiled_blocks import CompiledForwardBackward
from seqloom.fast.cuda_graphs.training_graphs import GraphedForwardBackward
from seqloom.fast.malloc import retain_freed_memory
from seqloom.fast.triton_common import runtime
from seqloom.training.forward_backward import (
    ForwardBackward,
    check_settings,
    graphs_supported,
    make_forward_backward,
)
from seqloom.training.settings import Training


def _supported(objective: nn.Module, settings: Training, device: torch.device, distributed: bool = False) -> bool:
    return True


@twin_of(make_forward_backward, _supported, hooks=True)
def make_fast_forward_backward(
    objective: nn.Module, settings: Training, device: torch.device, distributed: bool = False
) -> ForwardBackward:
    check_settings(objective, settings, device, distributed)
    if device.type == "cpu":
        retain_freed_memory()
    runtime.prepare(device)
    if settings.cuda_graphs != "off" and graphs_supported(objective, device, distributed):
        return GraphedForwardBackward(objective, settings, device)
    return (CompiledForwardBackward if settings.compile else ForwardBackward)(objective, settings, device)
