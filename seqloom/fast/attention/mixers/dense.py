"""Short rows as plain attention over all pairs, where all of them are visible anyway: one matmul instead of many."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.mixers.blockwise import blockwise
from seqloom.parts.mixers.efficient_attention import dense_attention
from seqloom.parts.mixers.reformer import Reformer, shared_scores
from seqloom.parts.mixers.sparse import BigBird
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility


def one_query(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, block: int) -> bool:
    return q.size(2) == 1


@twin_of(blockwise, one_query, compiles=True)
def dense_blockwise(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, block: int) -> Tensor:
    return dense_attention(q, k, v, visible)


def window_covers(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> bool:
    return visible.window is not None and visible.window >= q.size(2)


@twin_of(window_attention, window_covers, compiles=True)
def dense_window(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    return dense_attention(q, k, v, replace(visible, window=None, offset=0))


def few_blocks(self: BigBird, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> bool:
    return -(-q.size(2) // self.block) <= 4 and self.probe is None


@twin_of(BigBird.mix, few_blocks, compiles=True)
def dense_blocks(
    self: BigBird, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State
) -> tuple[Tensor, State]:
    return dense_attention(q, k, v, Visibility(lengths=visible.lengths)), state


def one_chunk(self: Reformer, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> bool:
    return q.size(2) <= self.chunk and self.probe is None


@twin_of(Reformer.mix, one_chunk, compiles=True)
def dense_chunk(
    self: Reformer, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State
) -> tuple[Tensor, State]:
    return shared_scores(q, visible.lengths).softmax(-1).to(v.dtype) @ v, state
