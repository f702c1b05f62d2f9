"""Attention one head at a time on a CPU, where all heads at once would allocate much."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LARGE = 2**25  # bytes: more go back to the system after each use, and getting them again is slow


def large(x: Tensor, times: int = 16) -> bool:
    """Whether an attention of x allocates much on a CPU, an estimated `times` as much as x has."""
    return not x.is_cuda and x.numel() * times * x.element_size() >= LARGE


def by_heads(call: Callable[..., Tensor], *inputs: Tensor, times: int = 16) -> Tensor:
    """`call` of inputs [B, heads, ...], one head at a time if they are `large`."""
    if not large(inputs[0], times):
        return call(*inputs)
    return torch.cat([call(*head) for head in zip(*(x.split(1, 1) for x in inputs), strict=True)], 1)
