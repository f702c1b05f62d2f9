"""Recording what a GPU does, to have it done again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recording(graph: Any, pool: Any, stream: Any) -> Iterator[None]:
    """What is launched inside is noted down in `graph` (torch.cuda.CUDAGraph) and not done. Other threads may go on.

    No garbage is collected meanwhile: to give back an older graph, or its memory, would break the recording off.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            yield
    finally:
        if was:
            gc.enable()
