"""When one kernel runs all steps, and in which precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from seqloom.hardware import bf16_supported
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.visibility import Visibility

Run = Callable[[Any, Tensor, Visibility, CellState], Any]


def without_autocast(run: Run) -> Run:
    """On a GPU autocast runs torch's RNN kernels in float16 even if bfloat16 was requested: TF32 is as fast and safer.
    And a CPU has no such kernel in float16, nor in bf16 without bf16 arithmetic."""

    @wraps(run)
    def in_float32(cell: Cell, x: Tensor, visible: Visibility, state: CellState) -> Any:
        device_type = x.device.type
        if not torch.is_autocast_enabled(device_type) or (not x.is_cuda and _has_kernel(x.device)):
            return run(cell, x, visible, state)
        with torch.autocast(device_type, enabled=False):
            full = tuple(part.float() if isinstance(part, Tensor) else part for part in state)
            return run(cell, x.float(), visible, full)

    return in_float32


def _has_kernel(cpu: torch.device) -> bool:
    return torch.get_autocast_dtype("cpu") == torch.bfloat16 and bf16_supported(cpu)


def one_kernel_pays(cell: Cell, x: Tensor) -> bool:
    """For a single step of few rows, setting up a kernel costs more than it saves: at width 512 on one core 1.9 against
    0.2 ms for one row, 4.1 against 3.1 for 64, and about the same from 320 on. No kernel knows zoneout."""
    many = x.size(1) > 1 or (x.size(0) > 256 and x.device.type == "cpu")
    return many and not any(cell.zoneout)
