"""Absolute positions: a vector for each position, added to the embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError, known
from seqloom.parts.positions.position import Position


class Sinusoidal(Position):
    """PE(t, 2i) = sin(t / 10000^(2i/d)), PE(t, 2i+1) = cos(…) (Vaswani et al. 2017, section 3.5). Any length.

    `layout="halves"` puts all sines before all cosines, as Marian does (Junczys-Dowmunt et al. 2018).
    """

    table: Tensor

    def __init__(self, dim: int, head_dim: int, layout: str = "interleaved") -> None:
        super().__init__(dim, head_dim)
        self.dim = dim
        self.halves = known(layout, ("interleaved", "halves"), "layout") == "halves"
        self.register_buffer("table", sinusoids(512, dim, halves=self.halves), persistent=False)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        end = offset + x.size(1)
        if end <= self.table.size(0):
            return x + self.table[offset:end].to(x.dtype)
        # Longer than the table: computed for this call alone, so that modules keep no state between calls.
        return x + sinusoids(end, self.dim, offset, x.device, self.halves).to(x.dtype)


class Learned(Position):
    """A trained vector for each of the first `longest` positions (Gehring et al. 2017, section 3.1)."""

    def __init__(self, dim: int, head_dim: int, longest: int = 512) -> None:
        super().__init__(dim, head_dim)
        self.longest = longest
        self.weight = nn.Parameter(torch.randn(longest, dim) * dim**-0.5)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        if offset + x.size(1) > self.longest:
            raise SeqloomError(
                f"learned positions reach {self.longest} tokens, here {offset + x.size(1)}; "
                "set position.longest higher, or choose 'sinusoidal', 'rotary', 'relative' or 'alibi'"
            )
        return x + self.weight[offset : offset + x.size(1)]


def sinusoids(end: int, dim: int, start: int = 0, device: torch.device | None = None, halves: bool = False) -> Tensor:
    """[end − start, dim]: sines in the even columns and cosines in the odd ones, or with `halves` sines first."""
    positions = torch.arange(start, end, dtype=torch.float64, device=device)
    angle = positions[:, None] * frequencies(dim, torch.float64, device)
    if halves:
        return torch.cat([angle.sin(), angle.cos()[:, : dim // 2]], 1).float()
    table = torch.empty(end - start, dim, dtype=torch.float64, device=device)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : dim // 2]
    return table.float()


def frequencies(dim: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """[dim / 2]: 10000^(−2i/dim)."""
    return 10000.0 ** (-torch.arange(0, dim, 2, dtype=dtype, device=device) / dim)
