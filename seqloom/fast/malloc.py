"""Memory of a process that trains or decodes on a CPU."""

from __future__ import annotations

import ctypes
import sys

TRIM, PAD, MAP = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD of malloc.h


def keep_freed() -> bool:
    """Have the C library keep memory that is freed; says whether it could be told.

    glibc hands large blocks back to the system and asks for them anew at the next step, and the system clears them page
    by page: up to a tenth of a step's time, in training and in decoding.
    """
    tell = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if tell is None:
        return False
    # 32 MiB is the most that glibc takes as a limit between its own heap and the system.
    return all([tell(MAP, 1 << 25), tell(TRIM, (1 << 31) - 1), tell(PAD, 1 << 26)])
