"""Linear attention: weights that are products of features, φ(q)·φ(k), so that keys and values can be summed up before
any query asks. Where it writes it is a recurrent network, whose state is those sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.head_projections import Heads, at_least, by_head, padded
from seqloom.parts.state import Kept
from seqloom.parts.visibility import Visibility, keep

Sums = tuple[Tensor, Tensor]  # Σ φ(k) vᵀ [B, heads, M, D] and Σ φ(k) [B, heads, M]
TOGETHER = 2**19  # random features of a row at a time on a CPU, so that what is made of them finds them in its cache


class LinearAttention(Heads):
    """y_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j) with φ(x) = elu(x) + 1, over all j, or j ≤ i where it writes
    (Katharopoulos et al. 2020, equations 5 and 7, https://arxiv.org/abs/2006.16236).

    Reports its weights, [B, heads, T, S]; while it steps, the first column is all that was before.
    """

    bounded = True
    kernel = True

    def begin(self, room: int | None = None) -> Kept:
        return Kept()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: Kept | None
    ) -> tuple[Tensor, Kept | None]:
        real = None if visible.lengths is None or visible.causal else keep(visible.lengths, k.size(2))[:, None, :, None]
        if state is not None or self.probe is not None:
            return self._mix(q, k, v, real, visible.causal, state)
        size = self._together(q)
        call = partial(self._in_pieces, real=real, causal=visible.causal, size=size)
        return (call(q, k, v) if size < q.size(2) else by_head(call, q, k, v)), None

    def _in_pieces(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, size: int) -> Tensor:
        """`size` places at a time."""
        if not causal:
            return self._everything(q, k, v, real, size)
        before, found = Kept(), []
        for some, keys, values in zip(*(x.split(size, 2) for x in (q, k, v)), strict=True):
            y, before = self._mix(some, keys, values, None, True, before)
            found.append(y)
        return _joined(found)

    def _mix(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, state: Kept | None
    ) -> tuple[Tensor, Any]:
        begun = state.parts if state is not None else ()
        fq, (fk, rest) = self.of_queries(q), self.of_keys(k, real, begun)
        sums = self.scaled(begun, rest)
        if self.probe is not None:
            y, after = plain(fq, fk, v, causal, sums, self.probe)
        else:
            y, after = running(fq, fk, v, sums)
        return y, None if state is None else Kept(state.used + q.size(2), (*after, *rest))

    def _everything(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, size: int) -> Tensor:
        begun: Any = ()
        reals = [None] * k.size(2) if real is None else real.split(size, 2)
        for some, values, those in zip(k.split(size, 2), v.split(size, 2), reals, strict=False):
            fk, rest = self.of_keys(some, those, begun)
            begun = (*summed(fk, values, self.scaled(begun, rest)), *rest)
        return _joined([everything(self.of_queries(some), begun[:2]) for some in q.split(size, 2)])

    def _together(self, q: Tensor) -> int:
        """How many places are taken at a time: all, for features are no more than what they are made of."""
        return q.size(2)

    def of_queries(self, q: Tensor) -> Tensor:
        """φ(q)"""
        return F.elu(q.contiguous()) + 1  # as it lies, a compiled gradient would not fit it

    def of_keys(self, k: Tensor, real: Tensor | None, begun: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """φ(k), zero where a key is not `real`, and what else the state holds after them."""
        fk = self.of_queries(k)
        return fk if real is None else fk * real, ()

    def scaled(self, begun: tuple[Tensor, ...], rest: tuple[Tensor, ...]) -> Sums | None:
        """The sums so far, in the measure of what is added now."""
        return begun[:2] if begun else None  # pyright: ignore


class Performer(LinearAttention):
    """Linear attention that comes near softmax(q·k / √d): φ(x) = exp(ω·x − |x|²/2) / √m for m random ω, orthogonal in
    groups, with x = q or k / d^¼ (FAVOR+: Choromanski et al. 2021, lemma 1 and section 2.4,
    https://arxiv.org/abs/2009.14794). The more `features`, the nearer.

    The ω are drawn from `seed` and stay. Reports its weights, as LinearAttention does.
    """

    omega: Tensor

    def __init__(
        self, dim: int, heads: int, score: Annotated[Choice, SCORES], features: int = 256, seed: int = 0
    ) -> None:
        super().__init__(dim, heads, score)
        self.register_buffer("omega", orthogonal(at_least("features", features), dim // heads, seed), persistent=False)

    def _together(self, q: Tensor) -> int:
        if q.device.type != "cpu" or torch.compiler.is_compiling():
            return q.size(2)
        return max(1, TOGETHER // (q.size(0) * q.size(1) * self.omega.size(0) * 128)) * 128

    def of_queries(self, q: Tensor) -> Tensor:
        # A factor that all features of a query share, or all keys, is in numerator and denominator alike: taken out, so
        # that no exponential overflows.
        drawn = self._drawn(q)[1]
        return (drawn - drawn.detach().amax(-1, keepdim=True)).exp().to(q.dtype)

    def of_keys(self, k: Tensor, real: Tensor | None, begun: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        x, drawn = self._drawn(k)
        drawn = drawn - x.pow(2).sum(-1, keepdim=True) / 2
        if real is not None:
            drawn = drawn.masked_fill(~real, float("-inf"))
        top = drawn.detach().amax((-2, -1), keepdim=True).clamp(min=torch.finfo(drawn.dtype).min)  # without keys too
        top = torch.maximum(top, begun[2]) if begun else top
        return (drawn - top).exp().to(k.dtype), (top,)

    def _drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x / d^¼ and ω·x / d^¼"""
        exact = torch.promote_types(x.dtype, torch.float32)
        x = x.to(exact) * x.size(-1) ** -0.25
        return x, x @ self.omega.to(exact).T

    def scaled(self, begun: tuple[Tensor, ...], rest: tuple[Tensor, ...]) -> Sums | None:
        if not begun:
            return None
        shrink = (begun[2] - rest[0]).exp()
        return begun[0] * shrink, begun[1] * shrink[..., 0]


def summed(k: Tensor, v: Tensor, begun: Sums | None = None) -> Sums:
    """Features k [B, heads, T, M] and v [B, heads, T, D] -> their sums, and those that were `begun`."""
    exact = torch.promote_types(k.dtype, torch.float32)
    values, keys = (k.mT @ v).to(exact), k.sum(-2, dtype=exact)
    return (values, keys) if begun is None else (values + begun[0], keys + begun[1])


def everything(q: Tensor, sums: Sums) -> Tensor:
    """Features q [B, heads, T, M] -> [B, heads, T, D]: every query sees every key that was summed."""
    return _divided(q @ sums[0].to(q.dtype), q @ sums[1].to(q.dtype).unsqueeze(-1))


def running(q: Tensor, k: Tensor, v: Tensor, begun: Sums | None, chunk: int = 0) -> tuple[Tensor, Sums]:
    """The same where a query sees no farther than itself, and the sums after all of them. In chunks: pairs within one,
    sums for all before it, so that neither [T, T] nor [T, M, D] is ever made."""
    n, exact = q.size(2), torch.promote_types(q.dtype, torch.float32)
    chunk = min(n, chunk or (64 if q.size(-1) <= 128 else 128))
    spare = -n % chunk
    q, k, v = (padded(x, 0, spare).unflatten(2, (-1, chunk)) for x in (q, k, v))
    values, keys = (k.mT @ v).to(exact), k.sum(-2, dtype=exact)
    up_to = values.cumsum(2), keys.cumsum(2)
    before = up_to[0] - values, up_to[1] - keys
    if begun is not None:
        up_to, before = (
            tuple(x + y.unsqueeze(2) for x, y in zip(pair, begun, strict=True)) for pair in (up_to, before)
        )
    pairs = (q @ k.mT).tril()
    mixed = pairs @ v + q @ before[0].to(q.dtype)
    total = pairs.sum(-1, keepdim=True) + q @ before[1].to(q.dtype).unsqueeze(-1)
    return _divided(mixed, total).flatten(2, 3)[:, :, :n], (up_to[0][:, :, -1], up_to[1][:, :, -1])


def plain(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, begun: Sums | None, report: Callable[[Tensor], None]
) -> tuple[Tensor, Sums]:
    """The twin of both, with all pairs."""
    pairs = q @ k.mT
    pairs = pairs.tril() if causal else pairs
    mixed, total = pairs @ v, pairs.sum(-1, keepdim=True)
    if begun is not None:
        past = q @ begun[1].to(q.dtype).unsqueeze(-1)
        mixed, total, pairs = mixed + q @ begun[0].to(q.dtype), total + past, torch.cat([past, pairs], -1)
    report(_divided(pairs, total).detach())
    return _divided(mixed, total), summed(k, v, begun)


def _joined(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def _divided(mixed: Tensor, total: Tensor) -> Tensor:
    return mixed / total.masked_fill(total == 0, 1.0)  # what sees nothing gets zeros


def orthogonal(count: int, dim: int, seed: int) -> Tensor:
    """[count, dim] directions, orthogonal within each `dim` of them, as long as normal vectors are."""
    generator = torch.Generator().manual_seed(seed)
    turns = torch.linalg.qr(torch.randn(-(-count // dim), dim, dim, generator=generator, dtype=torch.float64))
    # Without these signs some directions would never be drawn (Mezzadri 2007).
    even = turns.Q * turns.R.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    length = torch.randn(count, dim, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (even.mT.flatten(0, 1)[:count] * length).float()
