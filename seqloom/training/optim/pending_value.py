"""Asynchronous copies from the device to the host."""

from __future__ import annotations

import torch
from torch import Tensor


class PendingValue:
    """Copies a tensor to the host without waiting; `read` waits for the step that computed it, not for later ones."""

    def __init__(self, value: Tensor) -> None:
        self.host = value
        self.arrived = None
        if value.is_cuda:
            self.host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self.host.copy_(value, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def wait(self) -> Tensor:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.host

    def read(self) -> float:
        return float(self.wait())
