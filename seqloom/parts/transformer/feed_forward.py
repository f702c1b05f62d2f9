"""The position-wise feed-forward network of a Transformer block."""

from __future__ import annotations

from torch import Tensor, is_grad_enabled, nn

from seqloom.errors import SeqloomError, known
from seqloom.fast.feedforward import gpu as fused_feed_forward
from seqloom.fast.linear import cpu as linear_cpu
from seqloom.parts.layers.activations import ACTIVATIONS, Gelu, Relu
from seqloom.parts.layers.dropout import dropout, relu_dropout
from seqloom.parts.layers.linear import Linear


class FeedForward(nn.Module):
    """W₂ act(W₁ x + b₁) + b₂ at every position by itself (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, dim: int, hidden: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if hidden < 1:
            raise SeqloomError(f"hidden of a Transformer's feed-forward layers is at least 1, here {hidden}")
        self.up = Linear(dim, hidden)
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.down = Linear(hidden, dim)
        self.dropout = dropout
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.activation, Relu | Gelu) and fused_feed_forward.supported(x):
            gelu, p = isinstance(self.activation, Gelu), self.dropout if self.training else 0.0
            return self.down(fused_feed_forward.activation_dropout(*linear_cpu.defer_bias_grad(self.up, x), p, gelu))
        if isinstance(self.activation, Relu) and not (self.training or is_grad_enabled()):
            return self.down(linear_cpu.linear_relu(x, self.up))
        x = self.up(x)
        if isinstance(self.activation, Relu):
            return self.down(relu_dropout(x, self.dropout, self.training))
        return self.down(dropout(self.activation(x), self.dropout, self.training))
