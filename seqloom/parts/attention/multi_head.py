"""Multi-head attention: self-attention and cross-attention."""

from __future__ import annotations

from typing import Annotated, TypeGuard

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError, known
from seqloom.fast.attention import qkv_gpu, short_gpu
from seqloom.fast.linear.cpu import defer_bias_grad
from seqloom.parts.attention.attend import Memory, attend
from seqloom.parts.attention.kv_cache import Cache, cache_unneeded
from seqloom.parts.attention.normalizers import NORMALIZERS, Normalizer, softmax
from seqloom.parts.attention.scores import SCORES, Scaled
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.linear import Linear
from seqloom.parts.positions.position import AttentionPosition, NoPosition
from seqloom.parts.positions.rotary import RotaryTable
from seqloom.parts.probe import Probed
from seqloom.parts.visibility import Visibility

PackedMemory = tuple[Tensor, None]  # keys and values in one tensor, as projected: input of the kernel for short rows


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
        if dim % heads:
            fitting = ", ".join(str(n) for n in range(1, 33) if dim % n == 0)
            raise SeqloomError(f"{heads} heads do not divide the width {dim}; choose from: {fitting}")
        self.heads, self.key_heads, self.head_dim = heads, key_heads or heads, dim // heads
        self.projections, self.is_cross = projections, key_dim > 0
        self._check(dim, key_dim)
        self.normalize = NORMALIZERS[known(normalizer, NORMALIZERS, "normalizer")]
        self.dropout = dropout
        # One matrix for q, k and v: one large matmul is faster than three small ones.
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
    def standard(self) -> bool:
        """Whether it has as many key heads as query heads, all three projections, and softmax."""
        return self.key_heads == self.heads and self.projections == "qkv" and self.normalize is softmax

    @property
    def _drops_weights(self) -> bool:
        return self.training and self.dropout > 0.0

    def _normalizer(self) -> Normalizer:
        if not self._drops_weights:
            return self.normalize
        return lambda scores, keep: dropout(self.normalize(scores, keep), self.dropout, True)

    def project_memory(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> keys and values, [B, key_heads, S, head_dim]; with gradients perhaps a `PackedMemory`,
        which `cross_attend` takes too."""
        packed = self._project(states)
        if torch.is_grad_enabled() and self._short_supported(packed, Visibility(), 1, states.size(1)):
            return packed, None  # pyright: ignore[reportReturnType]
        return self._unpack_memory(packed, states)

    def _unpack_memory(self, packed: Tensor | None, states: Tensor) -> Memory:
        k, v = self._by_heads(packed, states, "kv")
        return self.score.keys(k), v

    def cross_attend(self, x: Tensor, memory: Memory | PackedMemory, visible: Visibility) -> Tensor:
        """Cross-attention: x [R, T, dim] over a memory of B sentences, R a multiple of B -> [R, T, dim]."""
        keys, values = memory
        queries = (x if self.query is None else self.query(x)).view(keys.size(0), -1, x.size(-1))
        if values is None:
            if self._short_supported(keys, visible, queries.size(1), keys.size(1)):
                return self.out(short_gpu.attention(queries, keys, visible, self.heads, self.score.scale).view_as(x))
            keys, values = self._unpack_memory(keys, keys)
        y = attend(self._split(queries), keys, values, self.score, visible, self.probe, self._normalizer())
        return self.out(_merge(y).view_as(x))

    def forward(
        self, x: Tensor, visible: Visibility, state: Cache | None = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Self-attention: x [R, T, dim] -> the same; with a cache, x follows what the cache holds."""
        if self.project is not None and self.standard and qkv_gpu.supported(x):
            packed, bias = defer_bias_grad(self.project, x)  # the kernels below make the gradient of the bias
        else:
            packed, bias = self._project(x), None
        if (
            isinstance(position, RotaryTable)
            and cache_unneeded(state)
            and self._short_supported(packed, visible, x.size(1), x.size(1))
        ):
            angles = position.angles(0, x.size(1))
            if state is not None:
                state.defer(x.size(1), lambda: self._rotated_memory(packed, bias, position))
            y = short_gpu.attention(packed, None, visible, self.heads, self.score.scale, bias, angles)
            return self.out(y), state
        q, k, v = parts = self._qkv(packed, bias, x)
        offset, position = state.used if state is not None else 0, position or _NO_POSITION
        q, k = position.rotate(q, k, offset)
        as_projected = q is parts[0] and k is parts[1] and offset == 0
        k = self.score.keys(k)
        if state is not None:
            k, v = state.append(k, v)
            visible = visible.at_offset(offset)
        visible = visible.with_bias(position.bias(self.heads, q.size(-2), k.size(-2), offset, visible.causal, q.dtype))
        if as_projected and self._short_supported(packed, visible, q.size(-2), k.size(-2)):
            return self.out(short_gpu.attention(packed, None, visible, self.heads, self.score.scale, bias)), state
        return self.out(_merge(attend(q, k, v, self.score, visible, self.probe, self._normalizer()))), state

    def _qkv(self, packed: Tensor | None, bias: Tensor | None, x: Tensor) -> list[Tensor]:
        """Queries, keys and values by heads; `bias` is given if its gradient is to be made here."""
        if packed is None or bias is None:
            return self._by_heads(packed, x, "qkv")
        return qkv_gpu.split_qkv(packed, bias, self.heads)

    def _rotated_memory(self, packed: Tensor, bias: Tensor | None, position: RotaryTable) -> Memory:
        """Keys and values for the cache: the kernel for short rows rotates keys itself and does not return them."""
        q, k, v = self._qkv(packed, bias, packed)
        return self.score.keys(position.rotate(q, k)[1]), v

    def _project(self, x: Tensor) -> Tensor | None:
        return None if self.project is None else self.project(x)

    def _by_heads(self, packed: Tensor | None, x: Tensor, parts: str) -> list[Tensor]:
        """Each of `parts`, [B, heads or key_heads, S, head_dim]: its share of the one projection, or x itself."""
        projected = iter(() if packed is None else packed.split(self.widths, -1))
        return [self._split(next(projected) if part in self.projections else x) for part in parts]

    def _short_supported(self, packed: Tensor | None, visible: Visibility, t: int, s: int) -> TypeGuard[Tensor]:
        """Whether the kernel for short rows can run."""
        plain = self.standard and self.probe is None and type(self.score) is Scaled and not self._drops_weights
        return packed is not None and plain and short_gpu.supported(packed, visible, t, s, self.head_dim)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


_NO_POSITION = NoPosition(0, 0)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _glorot(linear: nn.Linear, widths: list[int]) -> None:
    """Glorot's bound for each of the stacked matrices by itself, as if they were separate."""
    for part in linear.weight.split(widths):
        bound = (6.0 / (linear.in_features + part.size(0))) ** 0.5
        nn.init.uniform_(part, -bound, bound)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
