"""R-Drop: two passes over a batch with different dropout should give the same predictions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.training.settings import Training


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """½ (KL(p‖q) + KL(q‖p)) = ½ Σ (p − q)(log p − log q) of the softmax of each row: twice [N, V] -> [N]
    (R-Drop: Liang et al. 2021, equation 2, https://arxiv.org/abs/2106.14448)."""
    one, other = (
        logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)) for logits in (one, other)
    )
    return ((one.exp() - other.exp()) * (one - other)).sum(-1) / 2


def check_r_drop(objective: nn.Module, settings: Training, task: str) -> nn.Module:
    """The objective, after a check that it supports R-Drop if the settings ask for it."""
    if settings.r_drop and not getattr(objective, "r_drop", 0.0):
        raise SeqloomError(
            "training.r_drop goes with translate and tag, and with classify and table where one label is predicted; "
            f"leave it out for this training of {task}"
        )
    return objective
