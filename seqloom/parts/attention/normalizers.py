"""From the scores of all keys to attention weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Normalizer = Callable[[Tensor, Tensor | None], Tensor]  # scores [..., T, S] and the keep mask -> weights [..., T, S]


def softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """e^s / Σ e^s over visible keys (Bridle 1990). A query that sees no key gets zeros."""
    if keep is None:
        return scores.softmax(-1)
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep


def relu(scores: Tensor, keep: Tensor | None) -> Tensor:
    """max(0, s) / n, n the number of visible keys (Wortsman et al. 2023, section 3)."""
    if keep is not None:
        scores = scores.masked_fill(~keep, float("-inf"))
    visible = (scores > float("-inf")).sum(-1, keepdim=True)  # a bias may hide keys too
    return scores.relu() / visible.clamp_min(1)


NORMALIZERS: dict[str, Normalizer] = {"softmax": softmax, "relu": relu}
