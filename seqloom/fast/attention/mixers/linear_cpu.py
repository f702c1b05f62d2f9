"""Linear attention on a CPU: random features a few positions at a time, or one head at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.attention.mixers.by_heads import by_heads, large
from seqloom.parts.mixers.linear_attention import Features, RandomFeatures, attend_features, attend_sums, sum_keys
from seqloom.parts.state import MixerState
from seqloom.parts.visibility import Visibility, keep

CACHED = 2**19  # random features at a time, so that they stay in the processor's cache
Qkv = tuple[Tensor, Tensor, Tensor]
Report = Callable[[Tensor], None] | None


def _chunk(features: Features, q: Tensor) -> int:
    """How many positions are computed at a time."""
    if not isinstance(features, RandomFeatures) or q.device.type != "cpu":
        return q.size(2)
    return max(1, CACHED // (q.size(0) * q.size(1) * features.omega.size(0) * 128)) * 128


def long(features: Features, qkv: Qkv, visible: Visibility, state: MixerState | None, report: Report) -> bool:
    return state is None and report is None and _chunk(features, qkv[0]) < qkv[0].size(2)


@twin_of(attend_features, long)
def attend_in_chunks(
    features: Features, qkv: Qkv, visible: Visibility, state: MixerState | None, report: Report
) -> tuple[Tensor, None]:
    size = _chunk(features, qkv[0])
    if not visible.causal:
        return _both_ways(features, qkv, visible, size), None
    outputs, state = [], MixerState()
    for piece in zip(*(x.split(size, 2) for x in qkv), strict=True):
        y, state = plain_of(attend_features)(features, piece, visible, state, None)  # pyright: ignore
        outputs.append(y)
    return torch.cat(outputs, 2), None


def _both_ways(features: Features, qkv: Qkv, visible: Visibility, size: int) -> Tensor:
    q, k, v = qkv
    reals = [None] * k.size(2)
    if visible.lengths is not None:
        reals = keep(visible.lengths, k.size(2))[:, None, :, None].split(size, 2)
    before: Any = ()
    for keys, values, real in zip(k.split(size, 2), v.split(size, 2), reals, strict=False):
        key_features, sums, rest = features.keys(keys, real, before)
        before = (*sum_keys(key_features, values, sums), *rest)
    return torch.cat([attend_sums(features.queries(queries), before[:2]) for queries in q.split(size, 2)], 2)


def many(features: Features, qkv: Qkv, visible: Visibility, state: MixerState | None, report: Report) -> bool:
    return state is None and report is None and large(qkv[0])


@twin_of(attend_features, many, compiles=True)
def attend_by_heads(
    features: Features, qkv: Qkv, visible: Visibility, state: MixerState | None, report: Report
) -> tuple[Tensor, None]:
    def attend(*head: Tensor) -> Tensor:
        return plain_of(attend_features)(features, head, visible, None, None)[0]  # pyright: ignore

    return by_heads(attend, *qkv), None
