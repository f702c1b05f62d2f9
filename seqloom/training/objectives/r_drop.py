"""R-Drop: two passes over a batch with different dropout should give the same predictions."""

from __future__ import annotations

import torch
from torch import Tensor


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """½ (KL(p‖q) + KL(q‖p)) = ½ Σ (p − q)(log p − log q) of the softmax of each row: twice [N, V] -> [N]
    (R-Drop: Liang et al. 2021, equation 2, https://arxiv.org/abs/2106.14448)."""
    one, other = (
        logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)) for logits in (one, other)
    )
    return ((one.exp() - other.exp()) * (one - other)).sum(-1) / 2
