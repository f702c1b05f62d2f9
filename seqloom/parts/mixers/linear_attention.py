"""Linear attention: weights are dot products of features, φ(q)·φ(k), so the sums over keys and values do not depend on
the query. Causal, it is a recurrent network whose state is those sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import EfficientAttention, at_least, map_heads, pad_time
from seqloom.parts.state import MixerState
from seqloom.parts.visibility import Visibility, keep

Sums = tuple[Tensor, Tensor]  # Σ φ(k) vᵀ [B, heads, M, D] and Σ φ(k) [B, heads, M]
CPU_FEATURES = 2**19  # random features at a time on a CPU, so that they stay in its cache


class LinearAttention(EfficientAttention):
    """y_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j) with φ(x) = elu(x) + 1, over all j, or causal over j ≤ i
    (Katharopoulos et al. 2020, equations 5 and 7, https://arxiv.org/abs/2006.16236).

    Reports its weights, [B, heads, T, S]; with a state, the first column is all earlier steps together.
    """

    bounded = True
    own_formula = True

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: MixerState | None
    ) -> tuple[Tensor, MixerState | None]:
        real = None if visible.lengths is None or visible.causal else keep(visible.lengths, k.size(2))[:, None, :, None]
        if state is not None or self.probe is not None:
            return self._mix_whole(q, k, v, real, visible.causal, state)
        size = self._chunk_size(q)
        call = partial(self._mix_chunks, real=real, causal=visible.causal, size=size)
        return (call(q, k, v) if size < q.size(2) else map_heads(call, q, k, v)), None

    def _mix_chunks(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, size: int) -> Tensor:
        """`size` positions at a time."""
        if not causal:
            return self._mix_chunks_both_ways(q, k, v, real, size)
        state, outputs = MixerState(), []
        for queries, keys, values in zip(*(x.split(size, 2) for x in (q, k, v)), strict=True):
            y, state = self._mix_whole(queries, keys, values, None, True, state)
            outputs.append(y)
        return _concatenate(outputs)

    def _mix_whole(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, causal: bool, state: MixerState | None
    ) -> tuple[Tensor, Any]:
        before = state.parts if state is not None else ()
        query_features, (key_features, rest) = self.query_features(q), self.key_features(k, real, before)
        sums = self.rescaled_sums(before, rest)
        if self.probe is not None:
            y, after = reference(query_features, key_features, v, causal, sums, self.probe)
        else:
            y, after = causal_attention(query_features, key_features, v, sums)
        return y, None if state is None else MixerState(state.used + q.size(2), (*after, *rest))

    def _mix_chunks_both_ways(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, size: int) -> Tensor:
        before: Any = ()
        reals = [None] * k.size(2) if real is None else real.split(size, 2)
        for keys, values, real_keys in zip(k.split(size, 2), v.split(size, 2), reals, strict=False):
            features, rest = self.key_features(keys, real_keys, before)
            before = (*sum_keys(features, values, self.rescaled_sums(before, rest)), *rest)
        return _concatenate([attend_sums(self.query_features(queries), before[:2]) for queries in q.split(size, 2)])

    def _chunk_size(self, q: Tensor) -> int:
        """How many positions are computed at a time: here all, for features are as small as their inputs."""
        return q.size(2)

    def query_features(self, q: Tensor) -> Tensor:
        """φ(q)"""
        return F.elu(q.contiguous()) + 1  # contiguous, or strides of a compiled gradient would not match

    def key_features(
        self, k: Tensor, real: Tensor | None, before: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """φ(k), zero where a key is not `real`, and what the state holds besides the sums. `before`: the last state."""
        features = self.query_features(k)
        return features if real is None else features * real, ()

    def rescaled_sums(self, before: tuple[Tensor, ...], rest: tuple[Tensor, ...]) -> Sums | None:
        """The sums so far, on the scale of the features that are added now."""
        return before[:2] if before else None  # pyright: ignore


class Performer(LinearAttention):
    """Linear attention that approximates softmax(q·k / √d): φ(x) = exp(ω·x − |x|²/2) / √m for m random ω, orthogonal
    in groups, with x = q or k / d^¼ (FAVOR+: Choromanski et al. 2021, lemma 1 and section 2.4,
    https://arxiv.org/abs/2009.14794). The more `features`, the closer.

    The ω are drawn from `seed` and not trained. Reports its weights, as LinearAttention does.
    """

    omega: Tensor

    def __init__(
        self, dim: int, heads: int, score: Annotated[Choice, SCORES], features: int = 256, seed: int = 0
    ) -> None:
        super().__init__(dim, heads, score)
        self.register_buffer("omega", orthogonal(at_least("features", features), dim // heads, seed), persistent=False)

    def _chunk_size(self, q: Tensor) -> int:
        if q.device.type != "cpu" or torch.compiler.is_compiling():
            return q.size(2)
        return max(1, CPU_FEATURES // (q.size(0) * q.size(1) * self.omega.size(0) * 128)) * 128

    def query_features(self, q: Tensor) -> Tensor:
        # A factor common to all features of a query, or to all keys, cancels: dividing by the largest avoids overflow.
        projected = self._random_projection(q)[1]
        return (projected - projected.detach().amax(-1, keepdim=True)).exp().to(q.dtype)

    def key_features(
        self, k: Tensor, real: Tensor | None, before: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        x, projected = self._random_projection(k)
        projected = projected - x.pow(2).sum(-1, keepdim=True) / 2
        if real is not None:
            projected = projected.masked_fill(~real, float("-inf"))
        largest = projected.detach().amax((-2, -1), keepdim=True)
        largest = largest.clamp(min=torch.finfo(projected.dtype).min)  # finite without real keys
        largest = torch.maximum(largest, before[2]) if before else largest
        return (projected - largest).exp().to(k.dtype), (largest,)

    def _random_projection(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x / d^¼ and ω·x / d^¼"""
        exact = torch.promote_types(x.dtype, torch.float32)
        x = x.to(exact) * x.size(-1) ** -0.25
        return x, x @ self.omega.to(exact).T

    def rescaled_sums(self, before: tuple[Tensor, ...], rest: tuple[Tensor, ...]) -> Sums | None:
        if not before:
            return None
        shrink = (before[2] - rest[0]).exp()
        return before[0] * shrink, before[1] * shrink[..., 0]


def sum_keys(k: Tensor, v: Tensor, before: Sums | None = None) -> Sums:
    """Features k [B, heads, T, M] and v [B, heads, T, D] -> their sums, added to those `before`."""
    exact = torch.promote_types(k.dtype, torch.float32)
    values, keys = (k.mT @ v).to(exact), k.sum(-2, dtype=exact)
    return (values, keys) if before is None else (values + before[0], keys + before[1])


def attend_sums(q: Tensor, sums: Sums) -> Tensor:
    """Features q [B, heads, T, M] -> [B, heads, T, D]: every query sees all keys in the sums."""
    return _divide(q @ sums[0].to(q.dtype), q @ sums[1].to(q.dtype).unsqueeze(-1))


def causal_attention(q: Tensor, k: Tensor, v: Tensor, before: Sums | None, chunk: int = 0) -> tuple[Tensor, Sums]:
    """The same with a causal mask, and the sums after all keys. In chunks: all pairs within a chunk and sums for the
    chunks before it, so that neither [T, T] nor [T, M, D] is ever in memory."""
    n, exact = q.size(2), torch.promote_types(q.dtype, torch.float32)
    chunk = min(n, chunk or (64 if q.size(-1) <= 128 else 128))
    missing = -n % chunk
    q, k, v = (pad_time(x, 0, missing).unflatten(2, (-1, chunk)) for x in (q, k, v))
    values, keys = (k.mT @ v).to(exact), k.sum(-2, dtype=exact)
    inclusive = values.cumsum(2), keys.cumsum(2)
    exclusive = inclusive[0] - values, inclusive[1] - keys
    if before is not None:
        inclusive, exclusive = (
            tuple(x + y.unsqueeze(2) for x, y in zip(pair, before, strict=True)) for pair in (inclusive, exclusive)
        )
    weights = (q @ k.mT).tril()
    y = weights @ v + q @ exclusive[0].to(q.dtype)
    total = weights.sum(-1, keepdim=True) + q @ exclusive[1].to(q.dtype).unsqueeze(-1)
    return _divide(y, total).flatten(2, 3)[:, :, :n], (inclusive[0][:, :, -1], inclusive[1][:, :, -1])


def reference(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, before: Sums | None, report: Callable[[Tensor], None]
) -> tuple[Tensor, Sums]:
    """The plain twin of both, with all pairs."""
    weights = q @ k.mT
    weights = weights.tril() if causal else weights
    y, total = weights @ v, weights.sum(-1, keepdim=True)
    if before is not None:
        past = q @ before[1].to(q.dtype).unsqueeze(-1)
        y, total, weights = y + q @ before[0].to(q.dtype), total + past, torch.cat([past, weights], -1)
    report(_divide(weights, total).detach())
    return _divide(y, total), sum_keys(k, v, before)


def _concatenate(chunks: list[Tensor]) -> Tensor:
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, 2)


def _divide(y: Tensor, total: Tensor) -> Tensor:
    return y / total.masked_fill(total == 0, 1.0)  # a query that sees no key gets zeros


def orthogonal(count: int, dim: int, seed: int) -> Tensor:
    """[count, dim] random directions, orthogonal within each group of `dim`, with the lengths of normal vectors."""
    generator = torch.Generator().manual_seed(seed)
    qr = torch.linalg.qr(torch.randn(-(-count // dim), dim, dim, generator=generator, dtype=torch.float64))
    # Q alone is not uniformly distributed over the orthogonal matrices; with these signs it is (Mezzadri 2007).
    uniform = qr.Q * qr.R.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    length = torch.randn(count, dim, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (uniform.mT.flatten(0, 1)[:count] * length).float()
