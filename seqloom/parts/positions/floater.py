"""FLOATER: positional encodings that follow a learned differential equation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.errors import known
from seqloom.parts.positions.absolute import sinusoids
from seqloom.parts.positions.position import Position


class Floater(Position):
    """dp/dt = h(t, p; θ), the encoding of position i being p(i·step) (FLOATER: Liu et al. 2020, section 3,
    https://arxiv.org/abs/2003.09229), by one step of the classical Runge-Kutta method per position. h is a small
    network of width `hidden` (0: dim). With `start="sinusoidal"` p is added to sinusoids and starts as zero; with
    "zero" there are no sinusoids. The paper adds encodings in every block, as biases of q, k and v; here they are added
    to the embeddings.

    Any length, but computed sequentially: every decoding step starts again at position 0.
    """

    def __init__(self, dim: int, head_dim: int, hidden: int = 0, step: float = 0.1, start: str = "sinusoidal") -> None:
        super().__init__(dim, head_dim)
        self.sines = known(start, ("sinusoidal", "zero"), "start") == "sinusoidal"
        self.dim, self.step = dim, step
        self.first = nn.Parameter(torch.zeros(dim) if self.sines else torch.randn(dim) * dim**-0.5)
        self.field = Field(dim, hidden or dim)
        if self.sines:
            nn.init.zeros_(self.field.out.weight)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        # In float32 at least: rounding errors carry over to all later positions.
        exact = torch.promote_types(self.first.dtype, torch.float32)
        p, encodings = self.first.to(exact), []
        for index in range(end):
            p = runge_kutta(self.field, index * self.step - self.step, p, self.step) if index else p
            encodings.append(p)
        x = x + torch.stack(encodings[offset:]).to(x.dtype)
        return x + sinusoids(end, self.dim, offset, x.device).to(x.dtype) if self.sines else x


class Field(nn.Module):
    """h(t, p) = V tanh(W p + w t + b), the derivative of the encoding."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.state, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, dim, bias=False)
        self.time = nn.Parameter(torch.randn(hidden))

    def forward(self, t: float, p: Tensor) -> Tensor:
        return self.out((self.state(p.to(self.time.dtype)) + self.time * t).tanh()).to(p.dtype)


def runge_kutta(field: Callable[[float, Tensor], Tensor], t: float, p: Tensor, step: float) -> Tensor:
    """p(t + step) from p(t) where dp/dt = field(t, p), with an error of step⁵ (Kutta 1901)."""
    a = field(t, p)
    b = field(t + step / 2, p + a * (step / 2))
    c = field(t + step / 2, p + b * (step / 2))
    d = field(t + step, p + c * step)
    return p + (a + 2 * b + 2 * c + d) * (step / 6)
