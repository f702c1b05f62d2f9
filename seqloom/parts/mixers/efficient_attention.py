"""What efficient attentions share: q, k and v by heads before, an output projection after, and matmul helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.attend import attend
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import SCORES, Dot, Scaled
from seqloom.parts.positions.position import AttentionPosition, NoPosition, Position
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility


class EfficientAttention(MultiHeadAttention):
    """Self-attention with its own `mix`; its weights have the names of plain attention's."""

    causal = True
    bounded = False
    own_formula = False  # whether it computes something else than softmax(q·k), so that no score can be chosen

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES]) -> None:
        super().__init__(dim, heads, score=score)
        one, name = self.out.weight.new_zeros(1, 1, dim // heads), type(self).__name__
        if self.own_formula and not isinstance(self.score, Scaled):
            raise SeqloomError(f"score of {name} is 'scaled', by its own formula; choose mixer 'attention' for others")
        if self.score.as_dot(one, self.score.keys(one)) is None:
            raise SeqloomError(f"score of {name} must be a dot product; choose from: {_dot_scores()}")

    def begin(self, room: int | None = None) -> State:
        return Cache(room)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        q, k, v = self._by_heads(self._project(x), x, "qkv")
        q, k = self.rotation(position)(q, k, 0 if state is None else state.used)
        if not self.own_formula:
            q, k = self.score.as_dot(q, self.score.keys(k))
        y, state = self.mix(q, k, v, visible, state)
        return self.out(y.transpose(1, 2).flatten(2)), state

    def rotation(self, position: AttentionPosition | None) -> Callable[..., tuple[Tensor, Tensor]]:
        """`rotate` of a position. One with a bias for the score of every pair is refused: few pairs are computed."""
        if position is None or _has_no_bias(type(position)):
            return (position or NO_POSITION).rotate
        fitting = ", ".join(sorted(name for name, make in POSITIONS.items() if _has_no_bias(make)))
        raise SeqloomError(
            f"position {type(position).__name__} adds to the score of every pair, of which {type(self).__name__} makes "
            f"few; choose position from: {fitting}; or mixer 'attention'"
        )

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        """[R, heads, T, head_dim] each -> the same, and the new state. Without `own_formula` the score is q·k."""
        raise NotImplementedError


def check_positions(blocks: Iterable[Any], position: AttentionPosition) -> None:
    """Refuse a position that a block's mixer cannot use when the model is built, not at the first batch."""
    for block in blocks:
        if isinstance(block.mix, EfficientAttention):
            block.mix.rotation(position)


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Visibility, report: Callable[[Tensor], None] | None = None
) -> Tensor:
    """softmax(q·kᵀ) v over all pairs: the reference for sparse attention, and faster for short rows."""
    return attend(q, k, v, DOT, visible, report)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """softmax(q·kᵀ) v in N groups: q [B, heads, N, T, D], k and v [B, heads, N, S, D], a mask or bias `keep`
    [B or 1, 1 or heads, N, T or 1, S]. Reshaped to four axes, for which torch has fused kernels."""
    b, h = q.shape[:2]
    if keep is not None:
        keep = keep[0] if keep.shape[:2] == (1, 1) else keep.expand(b, h, -1, -1, -1).flatten(0, 1)
    flat = (x.flatten(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(*flat, attn_mask=keep, scale=1.0).unflatten(0, (b, h))


def map_heads(call: Callable[..., Tensor], *inputs: Tensor, times: int = 16) -> Tensor:
    """`call` of inputs [B, heads, ...]; on the CPU one head at a time where it allocates much, an estimated `times` the
    first input. Memory beyond 32 MiB goes back to the system after each use, and getting it again is slow."""
    if inputs[0].is_cuda or inputs[0].numel() * times * inputs[0].element_size() < 2**25:
        return call(*inputs)
    return torch.cat([call(*head) for head in zip(*(x.split(1, 1) for x in inputs), strict=True)], 1)


def pad_time(x: Tensor, before: int, after: int) -> Tensor:
    """[..., T, D] -> [..., before + T + after, D] with zeros."""
    return F.pad(x, (0, 0, before, after)) if before or after else x


def group_positions(count: int, size: int, step: int, start: int, device: torch.device) -> Tensor:
    """[count, size]: group i has the `size` positions from `start` + i·`step` on."""
    return torch.arange(count, device=device)[:, None] * step + start + torch.arange(size, device=device)


def at_least(name: str, value: int, least: int = 1) -> int:
    if value < least:
        raise SeqloomError(f"{name} is at least {least}, here {value}")
    return value


def _dot_scores() -> str:
    """The names of scores that can be written as q·k."""
    one, names = torch.zeros(1, 1, 2), []
    for name, make in SCORES.items():
        score = make(query_dim=2, key_dim=2)
        if score.as_dot(one, score.keys(one)) is not None:
            names.append(name)
    return ", ".join(sorted(names))


def _has_no_bias(make: type) -> bool:
    return getattr(make, "bias", None) is getattr(Position, "bias", None)


NO_POSITION = NoPosition(0, 0)
DOT = Dot(0, 0)
