"""Linear attention: weights are dot products of features, φ(q)·φ(k), so the sums over keys and values do not depend on
the query. Causal, it is a recurrent network whose state is those sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import EfficientAttention, at_least, pad_time
from seqloom.parts.state import MixerState
from seqloom.parts.visibility import Visibility, keep

Sums = tuple[Tensor, Tensor]  # Σ φ(k) vᵀ [B, heads, M, D] and Σ φ(k) [B, heads, M]


class KeyFeatures(NamedTuple):
    features: Tensor  # φ(k) [B, heads, T, M], zero where a key is not real
    sums: Sums | None  # those of the state, on the scale of these features
    rest: tuple[Tensor, ...]  # what the state holds besides the sums


class Features(Protocol):
    """φ, features of queries and keys [B, heads, T, D] -> [B, heads, T, M]."""

    def queries(self, q: Tensor) -> Tensor: ...

    def keys(self, k: Tensor, real: Tensor | None, before: tuple[Tensor, ...]) -> KeyFeatures:
        """`real` [B, 1, T, 1], None: all; `before`: the parts of the last state, none at first."""
        ...


class LinearAttention(EfficientAttention):
    """y_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j) with φ(x) = elu(x) + 1, over all j, or causal over j ≤ i
    (Katharopoulos et al. 2020, equations 5 and 7, https://arxiv.org/abs/2006.16236).

    Reports its weights, [B, heads, T, S]; with a state, the first column is all earlier steps together.
    """

    bounded = True
    own_formula = True

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES]) -> None:
        super().__init__(dim, heads, score)
        self.features = EluFeatures()

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: MixerState | None
    ) -> tuple[Tensor, MixerState | None]:
        return attend_features(self.features, (q, k, v), visible, state, self.probe)


class Performer(EfficientAttention):
    """Linear attention that approximates softmax(q·k / √d): φ(x) = exp(ω·x − |x|²/2) / √m for m random ω, orthogonal
    in groups, with x = q or k / d^¼ (FAVOR+: Choromanski et al. 2021, lemma 1 and section 2.4,
    https://arxiv.org/abs/2009.14794). The more `features`, the closer.

    The ω are drawn from `seed` and not trained. Reports its weights, as LinearAttention does.
    """

    bounded = True
    own_formula = True

    def __init__(
        self, dim: int, heads: int, score: Annotated[Choice, SCORES], features: int = 256, seed: int = 0
    ) -> None:
        super().__init__(dim, heads, score)
        self.features = RandomFeatures(orthogonal(at_least("features", features), dim // heads, seed))

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: MixerState | None
    ) -> tuple[Tensor, MixerState | None]:
        return attend_features(self.features, (q, k, v), visible, state, self.probe)


class EluFeatures:
    """φ(x) = elu(x) + 1"""

    def queries(self, q: Tensor) -> Tensor:
        return F.elu(q.contiguous()) + 1  # contiguous, or strides of a compiled gradient would not match

    def keys(self, k: Tensor, real: Tensor | None, before: tuple[Tensor, ...]) -> KeyFeatures:
        features = self.queries(k)
        return KeyFeatures(features if real is None else features * real, _sums(before), ())


class RandomFeatures(nn.Module):
    """φ(x) = exp(ω·x / d^¼ − |x|² / 2√d), up to a factor that all features of a query, or all keys, share: it cancels,
    and dividing by the largest avoids overflow. The state holds the largest exponent of keys so far."""

    omega: Tensor

    def __init__(self, omega: Tensor) -> None:
        super().__init__()
        self.register_buffer("omega", omega, persistent=False)

    def queries(self, q: Tensor) -> Tensor:
        projected = self._project(q)[1]
        return (projected - projected.detach().amax(-1, keepdim=True)).exp().to(q.dtype)

    def keys(self, k: Tensor, real: Tensor | None, before: tuple[Tensor, ...]) -> KeyFeatures:
        x, projected = self._project(k)
        projected = projected - x.pow(2).sum(-1, keepdim=True) / 2
        if real is not None:
            projected = projected.masked_fill(~real, float("-inf"))
        largest = projected.detach().amax((-2, -1), keepdim=True)
        largest = largest.clamp(min=torch.finfo(projected.dtype).min)  # finite without real keys
        sums = _sums(before)
        if sums is not None:
            largest = torch.maximum(largest, before[2])
            shrink = (before[2] - largest).exp()
            sums = sums[0] * shrink, sums[1] * shrink[..., 0]
        return KeyFeatures((projected - largest).exp().to(k.dtype), sums, (largest,))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x / d^¼ and ω·x / d^¼"""
        exact = torch.promote_types(x.dtype, torch.float32)
        x = x.to(exact) * x.size(-1) ** -0.25
        return x, x @ self.omega.to(exact).T


def _sums(before: tuple[Tensor, ...]) -> Sums | None:
    return (before[0], before[1]) if before else None


@accelerated
def attend_features(
    features: Features,
    qkv: tuple[Tensor, Tensor, Tensor],
    visible: Visibility,
    state: MixerState | None,
    report: Callable[[Tensor], None] | None,
) -> tuple[Tensor, MixerState | None]:
    """Linear attention with the features φ: q, k and v [B, heads, T, D] -> [B, heads, T, D], and the new state."""
    q, k, v = qkv
    real = None if visible.lengths is None or visible.causal else keep(visible.lengths, k.size(2))[:, None, :, None]
    query_features = features.queries(q)
    key_features, before, rest = features.keys(k, real, () if state is None else state.parts)
    if report is not None:
        y, sums = reference(query_features, key_features, v, visible.causal, before, report)
    elif visible.causal:
        y, sums = causal_attention(query_features, key_features, v, before)
    else:
        sums = sum_keys(key_features, v, before)
        y = attend_sums(query_features, sums)
    return y, None if state is None else MixerState(state.used + q.size(2), (*sums, *rest))


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
    """The same with all pairs, to report their weights."""
    weights = q @ k.mT
    weights = weights.tril() if causal else weights
    y, total = weights @ v, weights.sum(-1, keepdim=True)
    if before is not None:
        past = q @ before[1].to(q.dtype).unsqueeze(-1)
        y, total, weights = y + q @ before[0].to(q.dtype), total + past, torch.cat([past, weights], -1)
    report(_divide(weights, total).detach())
    return _divide(y, total), sum_keys(k, v, before)


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
