"""Where a token stands. A position either moves the embedding (`forward`) or turns queries and keys (`turn`)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError, known


class Position(nn.Module):
    """The slot: positions count real tokens from the left, and rows are padded after, so the index is the position."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """[R, T, dim] -> the same, its first step standing at `offset`."""
        return x

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """[R, heads, T, head_dim] queries and keys of one self-attention."""
        return q, k


class NoPosition(Position):
    """No positions: attention sees a bag of tokens; a causal decoder can still count (Haviv et al. 2022)."""


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
        # Longer than the table: computed for this call alone, since a module remembers nothing between calls.
        return x + sinusoids(end, self.dim, offset, x.device, self.halves).to(x.dtype)


class Learned(Position):
    """A trained vector for each of the first `longest` places (Gehring et al. 2017, section 3.1)."""

    def __init__(self, dim: int, head_dim: int, longest: int = 512) -> None:
        super().__init__(dim, head_dim)
        self.longest = longest
        self.weight = nn.Parameter(torch.randn(longest, dim) * dim**-0.5)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        if offset + x.size(1) > self.longest:
            raise SeqloomError(
                f"learned positions reach {self.longest} tokens, here {offset + x.size(1)}; "
                "set position.longest higher, or choose 'sinusoidal' or 'rotary'"
            )
        return x + self.weight[offset : offset + x.size(1)]


class Rotary(Position):
    """Pairs of features of q and k turned by t·θ_i, θ_i = 10000^(−2i/d): q·k then depends on the distance alone
    (Su et al. 2021, RoFormer, section 3.2)."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__(dim, head_dim)
        if head_dim % 2:
            raise SeqloomError(f"rotary positions turn pairs: the width of a head must be even, here {head_dim}")
        self.head_dim = head_dim

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        # No buffer: a model cast to bfloat16 would cast it too, and there places 1001 and 1002 are the same.
        exact = torch.promote_types(q.dtype, torch.float32)
        at = torch.arange(offset, offset + q.size(-2), device=q.device, dtype=exact)
        angle = at[:, None] * _frequencies(self.head_dim, exact, q.device)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)


class Turns(Protocol):
    """What self-attention knows of a position."""

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]: ...


class Abreast(NamedTuple):
    """Tokens side by side at one `place`: hypotheses, one after the other in the axis of time."""

    position: Position
    place: int

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        q, k = self.position.turn(q.unsqueeze(-2), k.unsqueeze(-2), self.place)
        return q.squeeze(-2), k.squeeze(-2)


POSITIONS = {"none": NoPosition, "sinusoidal": Sinusoidal, "learned": Learned, "rotary": Rotary}


def sinusoids(end: int, dim: int, start: int = 0, device: torch.device | None = None, halves: bool = False) -> Tensor:
    """[end − start, dim], sine in the even columns and cosine in the odd ones; or in the first half and the second."""
    at = torch.arange(start, end, dtype=torch.float64, device=device)
    angle = at[:, None] * _frequencies(dim, torch.float64, device)
    if halves:
        return torch.cat([angle.sin(), angle.cos()[:, : dim // 2]], 1).float()
    table = torch.empty(end - start, dim, dtype=torch.float64, device=device)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : dim // 2]
    return table.float()


def _frequencies(dim: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    return 10000.0 ** (-torch.arange(0, dim, 2, dtype=dtype, device=device) / dim)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    if x.device.type == "cpu" and x.dtype == cos.dtype and not torch.compiler.is_compiling():
        # A pair is a complex number, and a turn is a product: one pass over memory where parts by themselves take six.
        exact = torch.promote_types(x.dtype, torch.float32)
        pairs = torch.view_as_complex(x.to(exact).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.complex(cos.to(exact), sin.to(exact))).flatten(-2).to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
