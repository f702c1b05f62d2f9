"""Recovery when memory runs out: the same batch again, in twice as many micro-batches."""

from __future__ import annotations

import torch

from seqloom.errors import SeqloomError
from seqloom.training.distributed.processes import Ranks


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def check_recoverable(error: RuntimeError, ranks: Ranks, micro_batches: int, rows: int) -> None:
    """Raise unless `error` says that memory ran out, and batches of `rows` can be split into more `micro_batches`."""
    if is_out_of_memory(error) and ranks.distributed:
        raise SeqloomError(
            f"{ranks}: out of memory, and the others are in the middle of an exchange with it, so the "
            "batch cannot be repeated in pieces; lower training.batch_rows (or batch_tokens) and raise "
            "training.accumulate as much"
        ) from error
    if not is_out_of_memory(error) or micro_batches >= rows:
        raise error
