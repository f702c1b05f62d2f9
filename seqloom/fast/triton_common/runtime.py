"""Kernels of our own for a GPU, in Triton, which comes with torch's CUDA builds. Each has a plain twin in torch.

They are off until `prepare` has found that they run here. Triton's own interpreter runs them on a CPU, for tests:
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

READY = False  # a flag and no call: compilers read it as they trace
SUMS = False  # whether a product of half precision can be added to a sum of full precision in one kernel
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def prepare(device: torch.device) -> None:
    """Turn the kernels on where they can run. Triton compiles with a C compiler and Python's headers, which lean
    machines lack: there the plain twins go on, with a warning, since nothing but speed is lost."""
    global READY, SUMS
    if device.type != "cuda" or READY or find_spec("triton") is None:
        return
    try:
        _compile()
    except Exception as error:  # of a compiler, or of the system that has none
        why = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(f"steps are slower than they could be: Triton does not run here: {why}", stacklevel=2)
        return
    READY = torch.cuda.get_device_capability(device) >= (8, 0)  # before, products of bf16 are not to be had
    SUMS = READY and _sums(device)


def _compile() -> None:
    from triton.runtime import driver  # pyright: ignore[reportMissingImports]

    driver.active.get_current_target()  # compiles what Triton asks a device with


def _sums(device: torch.device) -> bool:
    one = torch.ones(16, 16, device=device)
    try:
        torch.addmm(one, one.bfloat16(), one.bfloat16(), out_dtype=torch.float32, out=one)  # pyright: ignore
    except (RuntimeError, TypeError):  # torch learned it step by step
        return False
    return bool((one == 17).all())


def usable(x: Tensor) -> bool:
    return READY and (x.is_cuda or INTERPRETED)


def seed(x: Tensor, p: float) -> Tensor | None:
    """For what a kernel drops, from torch's own generator, so that a recorded or resumed step draws what the plain one
    would have drawn; None if it drops nothing."""
    return torch.randint(1 << 62, (1,), device=x.device) if p > 0.0 else None


def jit(*, varying: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Triton's own, or nothing at all where there is no Triton. No kernel is compiled anew for `varying` numbers."""
    try:
        import triton  # pyright: ignore[reportMissingImports]
    except ImportError:
        return lambda kernel: kernel
    return triton.jit(do_not_specialize=varying)
