"""The one place where attention happens, and the two layers made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError, known
from seqloom.fast.attention import qkv_gpu, short_cpu, short_gpu
from seqloom.fast.linear.cpu import Linear
from seqloom.parts.attention.normalisers import NORMALISERS, Normaliser, softmax
from seqloom.parts.attention.scores import SCORES, Scaled, Score
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.positions.positions import NoPosition, Turned, Turns
from seqloom.parts.probe import Probed
from seqloom.parts.state import Cache, fresh
from seqloom.parts.visibility import See

Memory = tuple[Tensor, Tensor]  # the keys, as the score keeps them, and the values; one row per sentence
Packed = tuple[Tensor, None]  # both in one piece, as they were projected: for the kernel that takes them so


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    see: See,
    report: Callable[[Tensor], None] | None = None,
    normalise: Normaliser = softmax,
) -> Tensor:
    """softmax(score(q, k)) v over what may be seen: q [..., T, Q], k [..., S, K], v [..., S, D] -> [..., T, D].

    `k` has been through `score.keys`. Several heads of queries may share one of keys and values: those side by side.
    With `report` the plain path runs and the weights [..., T, S] are handed over.
    """
    if report is None and normalise is softmax and not _alone(q):
        if type(score) is Scaled:  # the kernel's own scale spares a product with it
            return _fused(q, k, v, see, score.scale)
        if pair := score.as_dot(q, k):
            return _fused(*pair, v, see)
    scores = score(_folded(q, k), k).view(*q.shape[:-1], k.size(-2))
    if see.bias is not None:
        scores = scores + see.bias
    weights = normalise(scores, _shaped(see.keep(q.size(-2), k.size(-2), q.device), scores))
    if report:
        report(weights.detach())
    return (_folded(weights.to(v.dtype), v) @ v).view(*q.shape[:-1], v.size(-1))


def _alone(q: Tensor) -> bool:
    """One query a sentence and one head, as a recurrent decoder asks while it is trained. On a GPU two small products
    are much quicker there than the kernels that are made for many queries."""
    return q.is_cuda and q.dim() == 3 and q.size(1) == 1


def _fused(q: Tensor, k: Tensor, v: Tensor, see: See, scale: float = 1.0) -> Tensor:
    """Lowering: the kernel's own triangle where it fits, no mask where all is visible, else a dense mask."""
    if q.dim() == 3:  # only with an axis for heads does torch choose its fused kernel
        return _fused(q[:, None], k[:, None], v[:, None], see, scale)[:, 0]
    t, s, shared = q.size(-2), k.size(-2), q.size(1) != k.size(1)
    if (
        short_cpu.short_attention_supported(q, k)
        and see.bias is None
        and see.window is None
        and (see.square(t, s) or not see.causal)
    ):
        return short_cpu.short_attention(q * scale, k, v, None if see.causal else see.keep(t, s, q.device), see.causal)
    if short_cpu.short_attention_no_grad_supported(q, k) and see.bias is None and see.window is None and not see.causal:
        return short_cpu.short_attention_no_grad(q, k, v, see.keep(t, s, q.device), scale)
    if see.square(t, s):
        return _kernel(q, k, v, scale=scale, is_causal=True, enable_gqa=shared)
    mask = see.keep(t, s, q.device)
    if see.bias is not None:
        mask = see.bias if mask is None else see.bias.masked_fill(~mask, float("-inf"))
    if not shared:
        return _kernel(q, k, v, scale=scale, attn_mask=mask)
    # As further queries, heads that share keys are any kernel's work, and no key is repeated.
    found = _kernel(_folded(q, k), k, v, scale=scale, attn_mask=_folded_mask(mask, q, k))
    return found.reshape(*q.shape[:-1], v.size(-1))


def _kernel(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """torch's, which has no fused one for values narrower than keys: those are filled up with zeros."""
    if (missing := k.size(-1) - v.size(-1)) <= 0:
        return F.scaled_dot_product_attention(q, k, v, **options)
    mixed = F.scaled_dot_product_attention(q, k, F.pad(v, (0, missing)), **options)
    return mixed[..., : v.size(-1)]


def _folded(x: Tensor, k: Tensor) -> Tensor:
    """[B, heads, T, ...] -> [B, key_heads, heads/key_heads·T, ...], where there are fewer heads of keys."""
    return x if x.dim() == 3 or x.size(1) == k.size(1) else x.reshape(x.size(0), k.size(1), -1, x.size(-1))


def _folded_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The same of what is added to scores, or hides them, [..., heads or 1, T or 1, S]."""
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.size(1) == mask.size(2) == 1:
        return mask
    return _folded(mask.expand(-1, q.size(1), q.size(2), -1), k)


def _shaped(keep: Tensor | None, like: Tensor) -> Tensor | None:
    """`keep` is [B, 1, T, S]; attention without a heads axis works on [B, T, S]."""
    return keep[:, 0] if keep is not None and like.dim() == 3 else keep


class Attention(Probed):
    """One head with any score, as recurrent decoders use it: the values are what was read, or `value_dim` of it.

    Reports its weights, [B, T, S].
    """

    def __init__(self, query_dim: int, key_dim: int, score: Choice = "additive", value_dim: int = 0) -> None:
        super().__init__()
        self.score = build(SCORES, score, query_dim=query_dim, key_dim=key_dim)
        self.value = nn.Linear(key_dim, value_dim) if value_dim else None
        self.dim = value_dim or key_dim

    def remember(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> what is kept of it: all that depends on the source alone, done once per sentence."""
        return self.score.keys(states), states if self.value is None else self.value(states)

    def forward(self, query: Tensor, memory: Memory, see: See) -> Tensor:
        """[R, T, query_dim] -> [R, T, dim]; R may be a multiple of the sentences: hypotheses are extra queries."""
        keys, values = memory
        rows, t, _ = query.shape
        folded = query.reshape(keys.size(0), -1, query.size(-1))
        mixed = attend(folded, keys, values, self.score, see, self.probe)
        return mixed.reshape(rows, t, values.size(-1))


class MultiHead(Probed):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2): self-attention, or cross-attention with `key_dim`.

    `key_heads`: of keys and values there are fewer heads, each shared by heads/key_heads of the queries' (Ainslie et
    al. 2023), or one for all (Shazeer 2019); 0: as many. `projections`: which of q, k and v have a matrix; the others
    are the input as it is. Heads share the parameters of a score that has any. `dropout`: of the weights, in training
    (as in the code of Vaswani et al. 2017), for which they are written down, all T × S of them.

    Reports its weights, [B, heads, T, S]. As a mixer, `forward(x, see, state)` attends to x itself; `read` attends to
    a memory made once by `remember`.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_dim: int = 0,
        score: Annotated[Choice, SCORES] = "scaled",
        bias: bool = True,
        key_heads: int = 0,
        projections: str = "qkv",
        normalizer: str = "softmax",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if dim % heads:
            fitting = ", ".join(str(n) for n in range(1, 33) if dim % n == 0)
            raise SeqloomError(f"{heads} heads do not divide the width {dim}; choose from: {fitting}")
        self.heads, self.key_heads, self.head_dim = heads, key_heads or heads, dim // heads
        self.projections, self.crosses = projections, key_dim > 0
        self._check(dim, key_dim)
        self.normalise = NORMALISERS[known(normalizer, NORMALISERS, "normalizer")]
        self.dropout = dropout
        # One matrix for q, k and v: one large product is faster than three small ones.
        widths = {"q": dim, "k": self.key_heads * self.head_dim, "v": self.key_heads * self.head_dim}
        self.widths = [widths[part] for part in ("kv" if key_dim else "qkv") if part in projections]
        self.query = Linear(dim, dim, bias=bias) if key_dim and "q" in projections else None
        self.project = Linear(key_dim or dim, sum(self.widths), bias=bias) if self.widths else None
        self.out = Linear(dim, dim, bias=bias)
        self.score = build(SCORES, score, query_dim=self.head_dim, key_dim=self.head_dim)
        for part, parts in ((self.query, [dim]), (self.project, self.widths), (self.out, [dim])):
            if part is not None:
                _glorot(part, parts)

    def _check(self, dim: int, key_dim: int) -> None:
        if self.key_heads < 1 or self.heads % self.key_heads:
            fitting = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            raise SeqloomError(f"key_heads={self.key_heads} do not divide {self.heads} heads; choose from: {fitting}")
        if self.projections not in ("", "q", "k", "v", "qk", "qv", "kv", "qkv"):
            raise SeqloomError(f"projections are letters of qkv in that order, here {self.projections!r}")
        bare = " and ".join(part for part in "kv" if part not in self.projections)
        if bare and (self.key_heads * self.head_dim != (key_dim or dim)):
            raise SeqloomError(
                f"projections={self.projections!r} leaves {bare} as wide as what is read, {key_dim or dim}, but "
                f"{self.key_heads} heads of {self.head_dim} are wanted; add {bare} to projections"
            )

    @property
    def usual(self) -> bool:
        """As many heads of keys as of queries, all projected, and a softmax: what the lean step knows."""
        return self.key_heads == self.heads and self.projections == "qkv" and self.normalise is softmax

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0.0

    def _weigh(self) -> Normaliser:
        if not self._drops:
            return self.normalise
        return lambda scores, keep: dropout(self.normalise(scores, keep), self.dropout, True)

    def remember(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> keys and values, [B, key_heads, S, dim/heads]; with gradients perhaps `Packed`, for
        `read`."""
        packed = self._product(states)
        if torch.is_grad_enabled() and packed is not None and self._short(packed, See(), 1, packed.size(1)):
            return packed, None  # pyright: ignore[reportReturnType]
        return self._unpacked(packed, states)

    def _unpacked(self, packed: Tensor | None, states: Tensor) -> Memory:
        k, v = self._parts(packed, states, "kv")
        return self.score.keys(k), v

    def read(self, x: Tensor, memory: Memory | Packed, see: See) -> Tensor:
        """Cross-attention: x [R, T, dim] over a memory of B sentences, R a multiple of B."""
        keys, values = memory
        folded = (x if self.query is None else self.query(x)).view(keys.size(0), -1, x.size(-1))
        if values is None:
            if self._short(keys, see, folded.size(1), keys.size(1)):
                return self.out(short_gpu.attention(folded, keys, see, self.heads, self.score.scale).view_as(x))
            keys, values = self._unpacked(keys, keys)
        mixed = attend(self._split(folded), keys, values, self.score, see, self.probe, self._weigh())
        return self.out(_merge(mixed).view_as(x))

    def forward(
        self, x: Tensor, see: See, state: Cache | None = None, position: Turns | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention: x [R, T, dim]; with a cache, x stands after what the cache holds."""
        packed, bias = self._apart(x)
        if isinstance(position, Turned) and fresh(state) and self._short(packed, see, x.size(1), x.size(1)):
            turns = position.turns(0, x.size(1))
            if state is not None:
                state.later(x.size(1), lambda: self._turned(packed, bias, position))
            return self.out(short_gpu.attention(packed, None, see, self.heads, self.score.scale, bias, turns)), state
        q, k, v = parts = self._three(packed, bias, x)
        offset, position = state.used if state is not None else 0, position or _UNMOVED
        q, k = position.turn(q, k, offset)
        still = q is parts[0] and k is parts[1] and offset == 0
        k = self.score.keys(k)
        if state is not None:
            k, v = state.append(k, v)
            see = see.after(offset)
        see = see.plus(position.bias(self.heads, q.size(-2), k.size(-2), offset, see.causal, q.dtype))
        if still and self._short(packed, see, q.size(-2), k.size(-2)):
            return self.out(short_gpu.attention(packed, None, see, self.heads, self.score.scale, bias)), state
        return self.out(_merge(attend(q, k, v, self.score, see, self.probe, self._weigh()))), state

    def _three(self, packed: Tensor | None, bias: Tensor | None, x: Tensor) -> list[Tensor]:
        """Queries, keys and values."""
        if packed is None or bias is None:
            return self._parts(packed, x, "qkv")
        return qkv_gpu.split_qkv(packed, bias, self.heads)

    def _turned(self, packed: Tensor, bias: Tensor | None, position: Turned) -> Memory:
        """The keys and values of which the kernel for short rows turns the keys by itself."""
        q, k, v = self._three(packed, bias, packed)
        return self.score.keys(position.turn(q, k)[1]), v

    def _projected(self, x: Tensor, parts: str) -> list[Tensor]:
        return self._parts(self._product(x), x, parts)

    def _product(self, x: Tensor) -> Tensor | None:
        return None if self.project is None else self.project(x)

    def _apart(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The product, and its bias where the slope of that is left to whoever takes the product."""
        return (
            self.project.forward_defer_bias_grad(x)
            if self.project is not None and self.usual and qkv_gpu.supported(x)
            else (self._product(x), None)
        )

    def _parts(self, packed: Tensor | None, x: Tensor, parts: str) -> list[Tensor]:
        """Each of `parts` by heads, [B, heads or key_heads, S, dim/heads]: a share of the one product, or x itself."""
        made = iter(() if packed is None else packed.split(self.widths, -1))
        return [self._split(next(made) if part in self.projections else x) for part in parts]

    def _short(self, packed: Tensor | None, see: See, t: int, s: int) -> TypeGuard[Tensor]:
        """Whether the kernel for short rows can do it."""
        usual = self.usual and self.probe is None and type(self.score) is Scaled and not self._drops
        return packed is not None and usual and short_gpu.supported(packed, see, t, s, self.head_dim)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


_UNMOVED = NoPosition(0, 0)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _glorot(linear: nn.Linear, widths: list[int]) -> None:
    """Glorot's bound for each of the stacked matrices by itself, as if they were separate."""
    for part in linear.weight.split(widths):
        bound = (6.0 / (linear.in_features + part.size(0))) ** 0.5
        nn.init.uniform_(part, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
