"""What efficient attentions share: q, k and v by heads before, an output projection after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.attend import attend
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import NO_POSITION, check_heads, glorot, merge_heads, split_heads
from seqloom.parts.attention.normalizers import softmax
from seqloom.parts.attention.scores import SCORES, Dot, Scaled
from seqloom.parts.layers.linear import Linear
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.probe import Probed
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility


class EfficientAttention(Probed):
    """Self-attention with its own `mix` of q, k and v. Parameters have the names of MultiHeadAttention's."""

    causal = True
    bounded = False
    own_formula = False  # whether it computes something else than softmax(q·k), so that no score can be chosen

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES]) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads, self.head_dim = heads, dim // heads
        self.project, self.out = Linear(dim, 3 * dim), Linear(dim, dim)
        self.score = build(SCORES, score, query_dim=self.head_dim, key_dim=self.head_dim)
        glorot(self.project, [dim, dim, dim])
        glorot(self.out, [dim])
        one, name = self.out.weight.new_zeros(1, 1, self.head_dim), type(self).__name__
        if self.own_formula and not isinstance(self.score, Scaled):
            raise SeqloomError(f"score of {name} is 'scaled', by its own formula; choose mixer 'attention' for others")
        if self.score.as_dot(one, self.score.keys(one)) is None:
            raise SeqloomError(f"score of {name} must be a dot product; choose from: {_dot_scores()}")

    def begin(self, room: int | None = None) -> State:
        return Cache(room)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        q, k, v = self.project_heads(x)
        q, k = self.rotation(position)(q, k, 0 if state is None else state.used)
        if not self.own_formula:
            q, k = self.score.as_dot(q, self.score.keys(k))
        y, state = self.mix(q, k, v, visible, state)
        return self.out(merge_heads(y)), state

    def project_heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """[R, T, dim] -> q, k and v, [R, heads, T, head_dim] each."""
        return tuple(split_heads(part, self.head_dim) for part in self.project(x).chunk(3, -1))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        """[R, heads, T, head_dim] each -> the same, and the new state. Without `own_formula` the score is q·k."""
        raise NotImplementedError

    def rotation(self, position: AttentionPosition | None) -> Callable[..., tuple[Tensor, Tensor]]:
        """`rotate` of a position. One with a bias for the score of every pair is refused: few pairs are computed."""
        if position is None or _has_no_bias(type(position)):
            return (position or NO_POSITION).rotate
        fitting = ", ".join(sorted(name for name, make in POSITIONS.items() if _has_no_bias(make)))
        raise SeqloomError(
            f"position {type(position).__name__} adds to the score of every pair, of which {type(self).__name__} makes "
            f"few; choose position from: {fitting}; or mixer 'attention'"
        )


def check_positions(blocks: Iterable[Any], position: AttentionPosition) -> None:
    """Refuse a position that a block's mixer cannot use when the model is built, not at the first batch."""
    for block in blocks:
        if isinstance(block.mix, EfficientAttention):
            block.mix.rotation(position)


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Visibility, report: Callable[[Tensor], None] | None = None
) -> Tensor:
    """softmax(q·kᵀ) v over all visible pairs."""
    return attend(q, k, v, DOT, visible, report)


@accelerated
def grouped_attention(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """softmax(q·kᵀ) v in N groups: q [B, heads, N, T, D], k and v [B, heads, N, S, D], a mask `keep` [B or 1,
    1 or heads, N, T or 1, S]."""
    return softmax(q @ k.mT, keep) @ v


def pad_time(x: Tensor, before: int, after: int) -> Tensor:
    """[..., T, D] -> [..., before + T + after, D] with zeros."""
    return F.pad(x, (0, 0, before, after)) if before or after else x


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


DOT = Dot(0, 0)
