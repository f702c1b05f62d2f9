"""A feed-forward network with ReLU without gradients: max(0, W x + b) in one kernel, or in place."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.fast.linear.cpu import linear_relu
from seqloom.parts.layers.activations import Relu
from seqloom.parts.transformer.feed_forward import FeedForward


def _supported(self: FeedForward, x: Tensor) -> bool:
    return isinstance(self.activation, Relu) and not (self.training or torch.is_grad_enabled())


@twin_of(FeedForward.forward, _supported, compiles=True)
def feed_forward_relu(self: FeedForward, x: Tensor) -> Tensor:
    return self.down(linear_relu(x, self.up))
