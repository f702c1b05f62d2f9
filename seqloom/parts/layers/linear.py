"""The linear layer of all parts."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated


@accelerated
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + b: x [..., in], weight [out, in] -> [..., out]."""
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """W x + b, as nn.Linear, with the same parameters."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)
