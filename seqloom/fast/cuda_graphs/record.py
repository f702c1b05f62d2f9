"""Recording of CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recording(graph: Any, pool: Any, stream: Any) -> Iterator[None]:
    """Kernels launched inside are recorded in `graph` (torch.cuda.CUDAGraph), not run. Other threads are not affected.

    Garbage collection is off meanwhile: freeing an older graph or its memory would break the recording.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            yield
    finally:
        if was:
            gc.enable()
