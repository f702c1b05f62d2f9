"""Attention as a function."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from seqloom.acceleration import accelerated
from seqloom.parts.attention.normalizers import Normalizer, softmax
from seqloom.parts.attention.scores import Score
from seqloom.parts.visibility import Visibility

Memory = tuple[Tensor, Tensor]  # keys, already through `score.keys`, and values; one row per sentence


@accelerated
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Visibility,
    report: Callable[[Tensor], None] | None = None,
    normalize: Normalizer = softmax,
) -> Tensor:
    """softmax(score(q, k)) v over visible keys: q [..., T, Q], k [..., S, K], v [..., S, D] -> [..., T, D].

    `k` has been through `score.keys`. Consecutive query heads may share one head of keys and values. `report` gets the
    weights [..., T, S].
    """
    scores = score(group_heads(q, k), k).view(*q.shape[:-1], k.size(-2))
    if visible.bias is not None:
        scores = scores + visible.bias
    keep = visible.keep(q.size(-2), k.size(-2), q.device)  # [B, 1, T, S]
    weights = normalize(scores, keep[:, 0] if keep is not None and scores.dim() == 3 else keep)
    if report:
        report(weights.detach())
    return (group_heads(weights.to(v.dtype), v) @ v).view(*q.shape[:-1], v.size(-1))


def group_heads(x: Tensor, k: Tensor) -> Tensor:
    """[B, heads, T, ...] -> [B, key_heads, heads/key_heads·T, ...] where k has fewer heads."""
    return x if x.dim() == 3 or x.size(1) == k.size(1) else x.reshape(x.size(0), k.size(1), -1, x.size(-1))
