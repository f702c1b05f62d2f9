"""Switches for our Triton kernels. Triton comes with torch's CUDA builds; each kernel has a reference in torch.

Kernels are off until `prepare` has found that they run here. Triton's interpreter runs them on a CPU for tests:
`TRITON_INTERPRET=1`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

READY = False  # a flag, not a call, so that compilers can read it while tracing
MIXED_ADDMM = False  # whether addmm can add a bf16 product to a float32 sum in one kernel
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def prepare(device: torch.device) -> None:
    """Turn the kernels on where they can run. Triton needs a C compiler and Python's headers; without them the
    references run, with a warning, since only speed is lost."""
    global READY, MIXED_ADDMM
    if device.type != "cuda" or READY or find_spec("triton") is None:
        return
    try:
        _compile_driver()
    except Exception as error:  # of a compiler, or of the system that has none
        why = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"steps are slower than they could be: Triton does not run here: {why}", stacklevel=2)
        return
    READY = torch.cuda.get_device_capability(device) >= (8, 0)  # older GPUs have no bf16 matmul
    MIXED_ADDMM = READY and _mixed_addmm(device)


def _compile_driver() -> None:
    from triton.runtime import driver  # pyright: ignore[reportMissingImports]

    driver.active.get_current_target()  # compiles Triton's driver module


def _mixed_addmm(device: torch.device) -> bool:
    one = torch.ones(16, 16, device=device)
    try:
        torch.addmm(one, one.bfloat16(), one.bfloat16(), out_dtype=torch.float32, out=one)  # pyright: ignore
    except (RuntimeError, TypeError):  # not in every version of torch
        return False
    return bool((one == 17).all())


def usable(x: Tensor) -> bool:
    return READY and (x.is_cuda or INTERPRETED)


def seed(x: Tensor, p: float) -> Tensor | None:
    """A dropout seed from torch's generator, so that steps in CUDA graphs and resumed steps draw the same masks; None
    without dropout."""
    return torch.randint(1 << 62, (1,), device=x.device) if p > 0.0 else None


def jit(*, varying: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """triton.jit, or no change without Triton. Kernels are not compiled again for new values of `varying` arguments."""
    try:
        import triton  # pyright: ignore[reportMissingImports]
    except ImportError:
        return lambda kernel: kernel
    return triton.jit(do_not_specialize=varying)
