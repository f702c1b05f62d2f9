"""LSH attention on a CPU, one head at a time where all heads at once would allocate much."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.attention.mixers.by_heads import large
from seqloom.parts.mixers.reformer import attend_chunks


def supported(q: Tensor, v: Tensor, rotations: Tensor, lengths: Tensor | None, chunk: int) -> bool:
    return large(q)


@twin_of(attend_chunks, supported, compiles=True)
def attend_by_heads(q: Tensor, v: Tensor, rotations: Tensor, lengths: Tensor | None, chunk: int) -> Tensor:
    heads = zip(q.split(1, 1), v.split(1, 1), rotations.split(1), strict=True)
    return torch.cat([plain_of(attend_chunks)(*head, lengths, chunk) for head in heads], 1)
