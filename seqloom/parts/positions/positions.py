"""Where a token stands. A position moves the embedding (`forward`), turns queries and keys (`turn`) or is added to the
scores of self-attention (`bias`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError, known
from seqloom.parts.positions.rotary import Turn, rotate


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

    def over(self, x: Tensor, offset: int = 0) -> Turns:
        """For all layers of one pass over x [R, T, dim], its first step standing at `offset`: what they share."""
        return self

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None:
        """Added to the scores of `t` queries, the first of which stands at `offset`, and `s` keys, the first of which
        stands at 0: [1, heads, t, s], or None. `causal`: nobody looks ahead."""
        return None


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
                "set position.longest higher, or choose 'sinusoidal', 'rotary', 'relative' or 'alibi'"
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
        return self.over(q, offset).turn(q, k, offset)

    def over(self, x: Tensor, offset: int = 0) -> Turns:
        # No buffer: a model cast to bfloat16 would cast it too, and there places 1001 and 1002 are the same.
        exact = torch.promote_types(x.dtype, torch.float32)
        at = torch.arange(offset, offset + x.size(-2), device=x.device, dtype=exact)
        angle = at[:, None] * _frequencies(self.head_dim, exact, x.device)
        return Turned(angle.cos(), angle.sin(), offset)


class SinusoidalRotary(Rotary, Sinusoidal):
    """Both: sinusoids in the embedding (Vaswani et al. 2017), and queries and keys turned (Su et al. 2021). Turned
    alone, tokens know how far they stand from each other but not where, and cross-attention, in which nothing is
    turned, has no place to look for."""


class Relative(Position):
    """A trained number for each head and each distance, added to the scores of all layers (Raffel et al. 2020, section
    2.1). Distances share `buckets`: a half of them hold one distance each, the others ever more, as the logarithm goes,
    up to `far`; beyond it all is one. Where one may look ahead, a half of the buckets is for what comes after.
    """

    near: Tensor
    both: Tensor

    def __init__(self, dim: int, head_dim: int, buckets: int = 32, far: int = 128) -> None:
        super().__init__(dim, head_dim)
        if buckets < 4 or buckets % 2 or far <= buckets // 2:
            raise SeqloomError(
                "relative positions have an even number of buckets, 4 at least, and position.far is more than "
                f"half of it, here {buckets} and {far}"
            )
        self.far = far
        self.weight = nn.Parameter(torch.randn(buckets, _heads(dim, head_dim)) * dim**-0.5)
        # Tables of whole numbers: a logarithm on the device might fall on the other side of a bound.
        self.register_buffer("near", bucket_of(far, buckets), persistent=False)
        back = bucket_of(far, buckets // 2)
        self.register_buffer("both", torch.cat([back[1:].flip(0) + buckets // 2, back]), persistent=False)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        back = _back(t, s, offset, self.near.device)
        if causal:
            bucket = self.near[back.clamp(0, self.far)]
        else:
            bucket = self.both[back.clamp(-self.far, self.far) + self.far]
        return nn.functional.embedding(bucket, self.weight).permute(2, 0, 1)[None].to(dtype)


def bucket_of(far: int, buckets: int) -> Tensor:
    """[far + 1]: the bucket of each distance that far back."""
    exact = buckets // 2

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        share = math.log(distance / exact) / math.log(far / exact)
        return min(exact + int(share * (buckets - exact) + 1e-9), buckets - 1)  # 1e-9: log 4 / log 2 is 2, not 1.99…

    return torch.tensor([bucket(distance) for distance in range(far + 1)])


class Alibi(Position):
    """−m_h |i − j| added to the score of places i and j, m_h = 2^(−8h/n) for the heads h = 1 … n (Press et al. 2022,
    section 3). For n that is no power of two, the slopes of the next smaller one, then every other of the next larger.
    What looks both ways looks back and ahead alike. Nothing is trained, and any length will do.
    """

    ranks: Tensor

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__(dim, head_dim)
        heads = _heads(dim, head_dim)
        self.power = 1 << (heads.bit_length() - 1)
        ranks = [2 * h for h in range(1, self.power + 1)] + [2 * h - 1 for h in range(1, heads - self.power + 1)]
        # Whole numbers, which a model cast to bfloat16 does not cast.
        self.register_buffer("ranks", torch.tensor(ranks), persistent=False)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        slopes = torch.exp2(self.ranks.double() * (-4.0 / self.power))
        exact = torch.promote_types(dtype, torch.float32)
        distance = _back(t, s, offset, self.ranks.device).abs().to(exact)
        return (-slopes.to(exact)[None, :, None, None] * distance).to(dtype)


class Floater(Position):
    """Encodings that flow: dp/dt = h(t, p; θ), p at place i being p(i·step) (FLOATER: Liu et al. 2020, section 3,
    https://arxiv.org/abs/2003.09229), by one step of the classical Runge-Kutta method from place to place. h is a small
    network of width `hidden` (0: dim). With `start="sinusoidal"` p is what is added to sinusoids and begins as nothing;
    with "zero" there are none. Theirs flow into every block, as biases of q, k and v; these are added at the entrance.

    Any length, but one place after the other: a step of decoding begins at place 0 again.
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
        # In float32 at least: what is lost at a place is lost at all that follow.
        exact = torch.promote_types(self.first.dtype, torch.float32)
        p, places = self.first.to(exact), []
        for place in range(end):
            p = runge_kutta(self.field, place * self.step - self.step, p, self.step) if place else p
            places.append(p)
        x = x + torch.stack(places[offset:]).to(x.dtype)
        return x + sinusoids(end, self.dim, offset, x.device).to(x.dtype) if self.sines else x


class Field(nn.Module):
    """h(t, p) = V tanh(W p + w t + b): how encodings move on."""

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


class Turns(Protocol):
    """What self-attention knows of a position."""

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]: ...

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None: ...


class Abreast(NamedTuple):
    """Tokens side by side at one `place`: hypotheses, one after the other in the axis of time. Keys are those of every
    place so far, side by side too."""

    position: Turns
    place: int

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        q, k = self.position.turn(q.unsqueeze(-2), k.unsqueeze(-2), self.place)
        return q.squeeze(-2), k.squeeze(-2)

    def bias(
        self, heads: int, t: int, s: int, offset: int = 0, causal: bool = False, dtype: torch.dtype = torch.float32
    ) -> Tensor | None:
        """[1, heads, 1, s]: the same for all that stand abreast."""
        places = self.place + 1
        bias = self.position.bias(heads, 1, places, self.place, True, dtype)
        return None if bias is None else bias[..., None].expand(-1, -1, -1, -1, s // places).flatten(-2)


class Turned(NamedTuple):
    """Rotary turns of some places, the first of which is `start`: cosines and sines, [T, head_dim / 2]."""

    cos: Tensor
    sin: Tensor
    start: int

    def turn(self, q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        cos, sin = self.turns(offset, q.size(-2))
        return rotate(q, cos, sin), rotate(k, cos, sin)

    def turns(self, offset: int, count: int) -> Turn:
        """Those of `count` places from `offset` on."""
        if count == self.cos.size(0):  # all of them: who exports knows that, but not that `offset` is `start`
            return self.cos, self.sin
        first = offset - self.start
        return self.cos[first : first + count], self.sin[first : first + count]

    bias = Position.bias


POSITIONS = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "sinusoidal-rotary": SinusoidalRotary,
    "relative": Relative,
    "alibi": Alibi,
    "floater": Floater,
}


def sinusoids(end: int, dim: int, start: int = 0, device: torch.device | None = None, halves: bool = False) -> Tensor:
    """[end − start, dim], sine in the even columns and cosine in the odd ones; or in the first half and the second."""
    at = torch.arange(start, end, dtype=torch.float64, device=device)
    angle = at[:, None] * _frequencies(dim, torch.float64, device)
    if halves:
        return torch.cat([angle.sin(), angle.cos()[:, : dim // 2]], 1).float()
    table = torch.empty(end - start, dim, dtype=torch.float64, device=device)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : dim // 2]
    return table.float()


def _heads(dim: int, head_dim: int) -> int:
    return dim // max(1, head_dim)  # more heads than features are attention's to refuse


def _back(t: int, s: int, offset: int, device: torch.device) -> Tensor:
    """[t, s]: how far a key stands behind a query; negative ahead of it."""
    return torch.arange(offset, offset + t, device=device)[:, None] - torch.arange(s, device=device)


def _frequencies(dim: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    return 10000.0 ** (-torch.arange(0, dim, 2, dtype=dtype, device=device) / dim)
