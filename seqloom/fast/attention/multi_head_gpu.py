"""Multi-head attention on a GPU: one kernel for short rows, which takes queries, keys and values packed as one
projection made them; and in training, the gradient of the projection's bias by the operation that follows it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.attention import qkv_gpu, short_gpu
from seqloom.fast.linear.cpu import defer_bias_grad
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention, split_heads
from seqloom.parts.attention.normalizers import softmax
from seqloom.parts.attention.scores import Scaled
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.positions.rotary import RotaryTable
from seqloom.parts.visibility import Visibility

PackedMemory = tuple[Tensor, None]  # keys and values in one tensor, as projected


def standard(part: MultiHeadAttention) -> bool:
    """Whether it has as many key heads as query heads, all three projections, and softmax."""
    return part.key_heads == part.heads and part.projections == "qkv" and part.normalize is softmax


def _short_supported(
    part: MultiHeadAttention, x: Tensor, dtype: torch.dtype, visible: Visibility, t: int, s: int
) -> bool:
    """Whether the kernel for short rows can run on projections in `dtype`, of which x is the input or one itself."""
    if not short_gpu.supported(x, dtype, visible, t, s, part.head_dim):
        return False
    drops = part.training and part.dropout > 0.0
    return standard(part) and part.probe is None and type(part.score) is Scaled and not drops


def _projected_dtype(x: Tensor) -> torch.dtype:
    """The precision of a projection of x."""
    cast = x.dtype != torch.float64 and torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if cast else x.dtype


# Self-attention


def project_supported(self: MultiHeadAttention, x: Tensor, parts: str) -> bool:
    return parts == self.projections == "qkv" and self.key_heads == self.heads and qkv_gpu.supported(x)


@twin_of(MultiHeadAttention.project_heads, project_supported)
def project_heads(self: MultiHeadAttention, x: Tensor, parts: str) -> list[Tensor]:
    return qkv_gpu.split_qkv(*_pack(self, x), self.heads)


def _pack(part: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Queries, keys and values in one tensor, and the bias in it if the next operation makes its gradient."""
    assert part.project is not None
    return defer_bias_grad(part.project, x) if qkv_gpu.supported(x) else (part.project(x), None)


def self_supported(
    self: MultiHeadAttention,
    x: Tensor,
    visible: Visibility,
    state: Cache | None = None,
    position: AttentionPosition | None = None,
) -> bool:
    if not _short_supported(self, x, _projected_dtype(x), visible, x.size(1), x.size(1)):
        return False
    if isinstance(position, RotaryTable):
        return _cache_unneeded(state)
    return (state is None or state.used == 0) and _leaves_all(position)


def _leaves_all(position: AttentionPosition | None) -> bool:
    """Whether it neither rotates nor adds to the scores."""
    if position is None:
        return True
    return type(position).rotate is Position.rotate and type(position).bias is Position.bias


def _cache_unneeded(cache: Cache | None) -> bool:
    """Whether nothing was read before and, as in training, probably no step will follow."""
    empty = type(cache) is Cache and cache.used == 0 and cache.room is None
    return cache is None or (empty and torch.is_grad_enabled())


@twin_of(MultiHeadAttention.forward, self_supported, compiles=True, hooks=True)
def self_attention(
    self: MultiHeadAttention,
    x: Tensor,
    visible: Visibility,
    state: Cache | None = None,
    position: AttentionPosition | None = None,
) -> tuple[Tensor, Cache | None]:
    packed, bias = _pack(self, x)
    table = position if isinstance(position, RotaryTable) else None
    if state is not None and table is not None:
        state = DeferredCache(x.size(1), lambda: _rotated_memory(self, packed, bias, table))
    elif state is not None:
        state.append(*qkv_gpu.split_qkv(packed, bias, self.heads)[1:])
    angles = None if table is None else table.angles(0, x.size(1))
    return self.out(short_gpu.attention(packed, None, visible, self.heads, _scale(self), bias, angles)), state


def _rotated_memory(part: MultiHeadAttention, packed: Tensor, bias: Tensor | None, table: RotaryTable) -> Memory:
    """Keys and values for the cache: the kernel rotates keys itself and does not return them."""
    q, k, v = qkv_gpu.split_qkv(packed, bias, part.heads)
    return table.rotate(q, k)[1], v


def _scale(part: MultiHeadAttention) -> float:
    assert isinstance(part.score, Scaled)
    return part.score.scale


class DeferredCache(Cache):
    """The cache after a first call, with keys and values that are computed if they are read: not in training."""

    def __init__(self, steps: int, make: Callable[[], Memory]) -> None:
        super().__init__()
        self.used, self.make = steps, make
        del self.keys, self.values  # so that `__getattr__` is asked for them

    def __getattr__(self, name: str) -> Tensor:
        if name not in ("keys", "values"):
            raise AttributeError(name)
        self.keys, self.values = self.make()
        return vars(self)[name]


# Cross-attention


def memory_supported(self: MultiHeadAttention, states: Tensor) -> bool:
    """In training only: decoding steps take keys and values by heads."""
    dtype = _projected_dtype(states)
    return torch.is_grad_enabled() and _short_supported(self, states, dtype, Visibility(), 1, states.size(1))


@twin_of(MultiHeadAttention.project_memory, memory_supported, compiles=True, hooks=True)
def project_memory(self: MultiHeadAttention, states: Tensor) -> PackedMemory:
    assert self.project is not None
    return self.project(states), None


def is_packed(self: MultiHeadAttention, x: Tensor, memory: Memory | PackedMemory, visible: Visibility) -> bool:
    return memory[1] is None


@twin_of(MultiHeadAttention.cross_attend, is_packed, own_state=True)
def cross_attend(self: MultiHeadAttention, x: Tensor, memory: PackedMemory, visible: Visibility) -> Tensor:
    packed, t = memory[0], x.size(0) * x.size(1) // max(1, memory[0].size(0))
    if not _short_supported(self, packed, packed.dtype, visible, t, packed.size(1)):
        keys, values = (split_heads(part, self.head_dim) for part in packed.chunk(2, -1))
        return plain_of(MultiHeadAttention.cross_attend)(self, x, (self.score.keys(keys), values), visible)
    queries = (x if self.query is None else self.query(x)).view(packed.size(0), -1, x.size(-1))
    return self.out(short_gpu.attention(queries, packed, visible, self.heads, _scale(self)).view_as(x))
