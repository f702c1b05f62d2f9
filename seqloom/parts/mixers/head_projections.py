"""What the kinds of efficient attention share: queries, keys and values in heads before, one map after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.attention import MultiHead, attend
from seqloom.parts.attention.scores import SCORES, Dot, Scaled
from seqloom.parts.positions.positions import POSITIONS, NoPosition, Position, Turns
from seqloom.parts.state import Cache, State
from seqloom.parts.visibility import Visibility


class Heads(MultiHead):
    """Self-attention with a `mix` of its own, and the weights of plain attention under the same names."""

    causal = True
    bounded = False
    kernel = False  # whether it goes another way than softmax(q·k), so that no score can be chosen

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES]) -> None:
        super().__init__(dim, heads, score=score)
        one, name = self.out.weight.new_zeros(1, 1, dim // heads), type(self).__name__
        if self.kernel and not isinstance(self.score, Scaled):
            raise SeqloomError(f"score of {name} is 'scaled', by its own formula; choose mixer 'attention' for others")
        if self.score.as_dot(one, self.score.keys(one)) is None:
            raise SeqloomError(f"score of {name} is a product, so that no pair is made; choose from: {_products()}")

    def begin(self, room: int | None = None) -> State:
        return Cache(room)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: Turns | None = None
    ) -> tuple[Tensor, State]:
        q, k, v = self._projected(x, "qkv")
        q, k = self.turn(position)(q, k, 0 if state is None else state.used)
        if not self.kernel:
            q, k = self.score.as_dot(q, self.score.keys(k))
        y, state = self.mix(q, k, v, visible, state)
        return self.out(y.transpose(1, 2).flatten(2)), state

    def turn(self, position: Turns | None) -> Callable[..., tuple[Tensor, Tensor]]:
        """How queries and keys are turned; a position that adds to the scores of pairs finds no pairs here."""
        if position is None or _unbiased(type(position)):
            return (position or UNMOVED).turn
        fitting = ", ".join(sorted(name for name, make in POSITIONS.items() if _unbiased(make)))
        raise SeqloomError(
            f"position {type(position).__name__} adds to the score of every pair, of which {type(self).__name__} makes "
            f"few; choose position from: {fitting}; or mixer 'attention'"
        )

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        """[R, heads, T, head_dim] each -> the same, and the state after them. Without a kernel of its own the score of
        a query and a key is q·k."""
        raise NotImplementedError


def agree(blocks: Iterable[Any], position: Turns) -> None:
    """Refuse a position that a block's mixer cannot use as soon as both are known, not when the first batch is read."""
    for block in blocks:
        if isinstance(block.mix, Heads):
            block.mix.turn(position)


def dense(
    q: Tensor, k: Tensor, v: Tensor, visible: Visibility, report: Callable[[Tensor], None] | None = None
) -> Tensor:
    """softmax(q·kᵀ) v, every pair of them: the twin of what is sparse, and the fused kernel for what is short."""
    return attend(q, k, v, DOT, visible, report)


def folded(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    """softmax(q·kᵀ) v in groups: q [B, heads, N, T, D], k and v [B, heads, N, S, D], keep [B or 1, 1 or heads, N, T or
    1, S]. As four axes, for which torch has fused kernels."""
    b, h = q.shape[:2]
    if keep is not None:
        keep = keep[0] if keep.shape[:2] == (1, 1) else keep.expand(b, h, -1, -1, -1).flatten(0, 1)
    flat = (x.flatten(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(*flat, attn_mask=keep, scale=1.0).unflatten(0, (b, h))


def by_head(call: Callable[..., Tensor], *parts: Tensor, times: int = 16) -> Tensor:
    """`call` of parts [B, heads, ...], on the CPU one head after the other where it makes much, so many `times` the
    first part: what exceeds 32 MiB is given back to the system each time, and paid for again page by page."""
    if parts[0].is_cuda or parts[0].numel() * times * parts[0].element_size() < 2**25:
        return call(*parts)
    return torch.cat([call(*one) for one in zip(*(part.split(1, 1) for part in parts), strict=True)], 1)


def padded(x: Tensor, before: int, after: int) -> Tensor:
    """[..., T, D] -> [..., before + T + after, D] with zeros."""
    return F.pad(x, (0, 0, before, after)) if before or after else x


def places(count: int, size: int, step: int, start: int, device: torch.device) -> Tensor:
    """[count, size]: group number i covers `size` places from `start` + i·`step` on."""
    return torch.arange(count, device=device)[:, None] * step + start + torch.arange(size, device=device)


def at_least(name: str, value: int, least: int = 1) -> int:
    if value < least:
        raise SeqloomError(f"{name} is at least {least}, here {value}")
    return value


def _products() -> str:
    one, found = torch.zeros(1, 1, 2), []
    for name, make in SCORES.items():
        score = make(query_dim=2, key_dim=2)
        if score.as_dot(one, score.keys(one)) is not None:
            found.append(name)
    return ", ".join(sorted(found))


def _unbiased(make: type) -> bool:
    return getattr(make, "bias", None) is getattr(Position, "bias", None)


UNMOVED = NoPosition(0, 0)
DOT = Dot(0, 0)
