"""Settings of the C library's memory allocator for training and decoding on a CPU."""

from __future__ import annotations

import ctypes
import sys

TRIM, PAD, MAP = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD of malloc.h


def retain_freed_memory() -> bool:
    """Have glibc keep freed memory for reuse; returns whether it accepted the settings.

    By default it returns large blocks to the system and requests them again at the next step, and the system zeroes
    them page by page: up to a tenth of a step's time, in training and in decoding.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    # 32 MiB is the largest mmap threshold that glibc accepts.
    return all([mallopt(MAP, 1 << 25), mallopt(TRIM, (1 << 31) - 1), mallopt(PAD, 1 << 26)])
