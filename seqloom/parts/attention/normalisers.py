"""From the scores of all keys to their weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Normaliser = Callable[[Tensor, Tensor | None], Tensor]  # scores [..., T, S] and what may be seen -> weights


def softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """e^s / Σ e^s over what is seen (Bridle 1990). A query that may look nowhere gets zeros, as in the fused kernel."""
    if keep is None:
        return scores.softmax(-1)
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep


def relu(scores: Tensor, keep: Tensor | None) -> Tensor:
    """max(0, s) / n, n the number of keys that are seen (Wortsman et al. 2023, section 3). No fused kernel does it."""
    if keep is not None:
        scores = scores.masked_fill(~keep, float("-inf"))
    seen = (scores > float("-inf")).sum(-1, keepdim=True)  # a bias may hide keys too
    return scores.relu() / seen.clamp_min(1)


NORMALISERS: dict[str, Normaliser] = {"softmax": softmax, "relu": relu}
