"""Damage by a seed: what disks, copies and editors do to the files of a folder."""

from __future__ import annotations

import random


def flipped(raw: bytes, draw: random.Random, first: int = 0) -> bytes:
    """One bit of it, from byte `first` on, is the other."""
    changed = bytearray(raw)
    bit = draw.randrange(8 * first, 8 * len(raw))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
