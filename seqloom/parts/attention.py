"""The one place where softmax attention happens, and the two layers made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.choose import Choice, build
from seqloom.parts.position import NoPosition, Turns
from seqloom.parts.probe import Probed
from seqloom.parts.product import Linear
from seqloom.parts.score import SCORES, Score
from seqloom.parts.see import See
from seqloom.parts.short import mixed, worth
from seqloom.parts.state import Cache

Memory = tuple[Tensor, Tensor]  # the keys, as the score keeps them, and the values; one row per sentence


def attend(
    q: Tensor, k: Tensor, v: Tensor, score: Score, see: See, report: Callable[[Tensor], None] | None = None
) -> Tensor:
    """softmax(score(q, k)) v over what may be seen: q [..., T, Q], k [..., S, K], v [..., S, D] -> [..., T, D].

    `k` has been through `score.keys`. With `report` the plain path runs and the weights [..., T, S] are handed over.
    """
    if report is None and not _alone(q) and (pair := score.as_dot(q, k)):
        return _fused(*pair, v, see)
    scores = score(q, k)
    keep = _shaped(see.keep(q.size(-2), k.size(-2), q.device), scores)
    if see.bias is not None:
        scores = scores + see.bias
    if keep is None:
        weights = scores.softmax(-1)
    else:  # a query that may look nowhere gets zeros, as in the fused kernel, not NaN
        weights = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep
    if report:
        report(weights.detach())
    return weights.to(v.dtype) @ v


def _alone(q: Tensor) -> bool:
    """One query a sentence and one head, as a recurrent decoder asks while it is trained. On a GPU two small products
    are much quicker there than the kernels that are made for many queries."""
    return q.is_cuda and q.dim() == 3 and q.size(1) == 1


def _fused(q: Tensor, k: Tensor, v: Tensor, see: See) -> Tensor:
    """Lowering: the kernel's own triangle where it fits, no mask where all is visible, else a dense mask."""
    if q.dim() == 3:  # only with an axis for heads does torch choose its fused kernel
        return _fused(q[:, None], k[:, None], v[:, None], see)[:, 0]
    t, s = q.size(-2), k.size(-2)
    if worth(q, k) and see.bias is None and see.window is None and (see.square(t, s) or not see.causal):
        return mixed(q, k, v, None if see.causal else see.keep(t, s, q.device), see.causal)
    if see.square(t, s):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    mask = see.keep(t, s, q.device)
    if see.bias is not None:
        mask = see.bias if mask is None else see.bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


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

    Reports its weights, [B, heads, T, S]. As a mixer, `forward(x, see, state)` attends to x itself; `read` attends to
    a memory made once by `remember`.
    """

    def __init__(
        self, dim: int, heads: int, *, key_dim: int = 0, score: Annotated[Choice, SCORES] = "scaled", bias: bool = True
    ) -> None:
        super().__init__()
        if dim % heads:
            fitting = ", ".join(str(n) for n in range(1, 33) if dim % n == 0)
            raise SeqloomError(f"{heads} heads do not divide the width {dim}; choose from: {fitting}")
        self.heads = heads
        # One matrix for q, k and v: one large product is faster than three small ones.
        self.query = Linear(dim, dim, bias=bias) if key_dim else None
        self.project = Linear(key_dim or dim, 2 * dim if key_dim else 3 * dim, bias=bias)
        self.out = Linear(dim, dim, bias=bias)
        self.score = build(SCORES, score, query_dim=dim // heads, key_dim=dim // heads)
        for part in (self.query, self.project, self.out):
            if part is not None:
                _glorot(part, dim)

    def remember(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> keys and values, [B, heads, S, dim/heads]."""
        k, v = self.project(states).chunk(2, -1)
        return self.score.keys(self._split(k)), self._split(v)

    def read(self, x: Tensor, memory: Memory, see: See) -> Tensor:
        """Cross-attention: x [R, T, dim] over a memory of B sentences, R a multiple of B."""
        assert self.query is not None
        keys, values = memory
        folded = self.query(x).view(keys.size(0), -1, x.size(-1))
        mixed = attend(self._split(folded), keys, values, self.score, see, self.probe)
        return self.out(_merge(mixed).view_as(x))

    def forward(
        self, x: Tensor, see: See, state: Cache | None = None, position: Turns | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention: x [R, T, dim]; with a cache, x stands after what the cache holds."""
        q, k, v = (self._split(part) for part in self.project(x).chunk(3, -1))
        offset = state.used if state is not None else 0
        q, k = (position or _UNMOVED).turn(q, k, offset)
        k = self.score.keys(k)
        if state is not None:
            k, v = state.append(k, v)
            see = see.after(offset)
        return self.out(_merge(attend(q, k, v, self.score, see, self.probe))), state

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


_UNMOVED = NoPosition(0, 0)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _glorot(linear: nn.Linear, dim: int) -> None:
    """Glorot's bound for each of the stacked matrices by itself, as if they were separate."""
    bound = (6.0 / (linear.in_features + dim)) ** 0.5
    nn.init.uniform_(linear.weight, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
