"""Multi-head attention: self-attention and cross-attention."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.errors import SeqloomError, known
from seqloom.parts.attention.attend import Memory, attend
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.normalizers import NORMALIZERS, Normalizer
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.linear import Linear
from seqloom.parts.positions.position import AttentionPosition, NoPosition
from seqloom.parts.probe import Probed
from seqloom.parts.visibility import Visibility


class MultiHeadAttention(Probed):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2): self-attention, or cross-attention with `key_dim`.

    `key_heads`: the number of key and value heads, each shared by heads/key_heads query heads (Ainslie et al. 2023),
    or by all (1: Shazeer 2019); 0: as many as `heads`. `projections`: which of q, k and v have a matrix; the others are
    the input itself. Heads share the parameters of the score. `dropout`: of the weights, in training (as in the code of
    Vaswani et al. 2017); it needs all T × S weights in memory.

    Reports its weights, [B, heads, T, S]. As a mixer, `forward(x, visible, state)` attends to x itself; `cross_attend`
    attends to a memory made once by `project_memory`.
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
        check_heads(dim, heads)
        self.heads, self.key_heads, self.head_dim = heads, key_heads or heads, dim // heads
        self.projections, self.is_cross = projections, key_dim > 0
        self._check(dim, key_dim)
        self.normalize = NORMALIZERS[known(normalizer, NORMALIZERS, "normalizer")]
        self.dropout = dropout
        # One matrix for q, k and v, stacked.
        widths = {"q": dim, "k": self.key_heads * self.head_dim, "v": self.key_heads * self.head_dim}
        self.widths = [widths[part] for part in ("kv" if key_dim else "qkv") if part in projections]
        self.query = Linear(dim, dim, bias=bias) if key_dim and "q" in projections else None
        self.project = Linear(key_dim or dim, sum(self.widths), bias=bias) if self.widths else None
        self.out = Linear(dim, dim, bias=bias)
        self.score = build(SCORES, score, query_dim=self.head_dim, key_dim=self.head_dim)
        for part, parts in ((self.query, [dim]), (self.project, self.widths), (self.out, [dim])):
            if part is not None:
                glorot(part, parts)

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

    @accelerated
    def project_memory(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> keys and values, [B, key_heads, S, head_dim]."""
        k, v = self.project_heads(states, "kv")
        return self.score.keys(k), v

    @accelerated
    def cross_attend(self, x: Tensor, memory: Memory, visible: Visibility) -> Tensor:
        """Cross-attention: x [R, T, dim] over a memory of B sentences, R a multiple of B -> [R, T, dim]."""
        k, v = memory
        queries = x if self.query is None else self.query(x)
        q = split_heads(queries.view(k.size(0), -1, x.size(-1)), self.head_dim)
        y = attend(q, k, v, self.score, visible, self.probe, self._normalizer())
        return self.out(merge_heads(y).view_as(x))

    @accelerated
    def forward(
        self, x: Tensor, visible: Visibility, state: Cache | None = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention: x [R, T, dim] -> the same; with a cache, x follows what the cache holds."""
        offset, position = 0 if state is None else state.used, position or NO_POSITION
        q, k, v = self.project_heads(x, "qkv")
        q, k = position.rotate(q, k, offset)
        k = self.score.keys(k)
        if state is not None:
            k, v = state.append(k, v)
            visible = visible.at_offset(offset)
        visible = visible.with_bias(position.bias(self.heads, q.size(-2), k.size(-2), offset, visible.causal, q.dtype))
        y = attend(q, k, v, self.score, visible, self.probe, self._normalizer())
        return self.out(merge_heads(y)), state

    @accelerated
    def project_heads(self, x: Tensor, parts: str) -> list[Tensor]:
        """Each of `parts`, letters of qkv, by heads, [B, heads or key_heads, T, head_dim]: its share of the common
        projection of x [B, T, ...], or x itself."""
        projected = iter(() if self.project is None else self.project(x).split(self.widths, -1))
        return [split_heads(next(projected) if part in self.projections else x, self.head_dim) for part in parts]

    def _normalizer(self) -> Normalizer:
        """Weights from scores, with dropout in training."""
        if not self.training or self.dropout == 0.0:
            return self.normalize
        return lambda scores, keep: dropout(self.normalize(scores, keep), self.dropout, True)


NO_POSITION = NoPosition(0, 0)


def check_heads(dim: int, heads: int) -> None:
    if dim % heads:
        fitting = ", ".join(str(n) for n in range(1, 33) if dim % n == 0)
        raise SeqloomError(f"{heads} heads do not divide the width {dim}; choose from: {fitting}")


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, T, heads·head_dim] -> [B, heads, T, head_dim]."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, heads, T, head_dim] -> [B, T, heads·head_dim]."""
    return x.transpose(1, 2).flatten(2)


def glorot(linear: nn.Linear, widths: list[int]) -> None:
    """Glorot's bound for each of the stacked matrices by itself, as if they were separate."""
    for part in linear.weight.split(widths):
        bound = (6.0 / (linear.in_features + part.size(0))) ** 0.5
        nn.init.uniform_(part, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
