"""The check of an exported model: its outputs equal torch's at several shapes, or the export fails."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from seqloom.data.batches.collate import Padded, pad
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.errors import SeqloomError
from seqloom.runs.interop.huggingface_files import NEVER

SHAPES = ((1, 1), (2, 7), (5, 40), (3, 200))  # rows and length at which both are asked
STEPS = 6  # and so many tokens are written
CLOSE = 1e-5  # the most by which they may differ; of the largest number, where that is above 1


def check_close(found: Iterable[tuple[str, float]], name: str) -> float:
    """The largest of the differences, each with where it was found; refused if one is not CLOSE."""
    largest = 0.0
    for where, difference in found:
        if not difference <= CLOSE:  # nor is NaN
            raise SeqloomError(
                f"{name}: not exported: at {where} it would differ from torch by {difference:.1e}, "
                f"and {CLOSE:g} is allowed"
            )
        largest = max(largest, difference)
    return largest


def relative_difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest number if that is above 1. Tokens that are never written do not
    count: beside their bias of −1000 all other differences would vanish."""
    real = one > NEVER / 2
    return float((one - other)[real].abs().max() / one[real].abs().max().clamp(min=1.0))


def random_sources(size: int, rows: int, length: int, max_positions: int | None, draw: torch.Generator) -> Padded:
    """Random sources of a vocabulary: the first of full length, the others of any."""
    length = min(length, max_positions or length)
    lengths = [length, *torch.randint(1, length + 1, (rows - 1,), generator=draw).tolist()]
    return pad([torch.randint(len(SPECIALS), size, (count,), generator=draw).numpy() for count in lengths])
