"""Exact attention in blocks of keys: the square of the length in time, but not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.head_projections import Heads, at_least, dense
from seqloom.parts.state import Cache
from seqloom.parts.visibility import Visibility


class Blockwise(Heads):
    """softmax(q·kᵀ / √d) v, one block of keys after the other, with the running maximum m and sum l of each query:
    m' = max(m, max s), l' = e^(m − m')·l + Σ e^(s − m'), y' = e^(m − m')·y + e^(s − m') v, in the end y / l (Rabe &
    Staats 2021, https://arxiv.org/abs/2112.05682; Milakov & Gimelshein 2018).

    Weights are computed anew for the gradient, so memory is length times `block`. Reports its weights, [B, heads, T,
    S].
    """

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES], block: int = 512) -> None:
        super().__init__(dim, heads, score)
        self.block = at_least("block", block)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        if state is not None:
            visible = visible.at_offset(state.used)
            k, v = state.append(k, v)
        if self.probe is not None or q.size(2) == 1:  # a single query has no square to save
            return dense(q, k, v, visible, self.probe), state
        return blockwise(q, k, v, visible, self.block), state


def blockwise(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, block: int) -> Tensor:
    """softmax(q·kᵀ) v over what may be seen, all [B, heads, T or S, D]."""
    return _Blockwise.apply(q, k, v, visible.lengths, visible.offset if visible.causal else None, block)  # pyright: ignore


class _Block(NamedTuple):
    keys: slice
    first: int  # the queries before it see none of these keys
    scores: Tensor  # [B, heads, T − first, block], −inf where nothing is seen


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, offset: int | None, block: int):
        exact = torch.promote_types(q.dtype, torch.float32)
        top = q.new_full((*q.shape[:3], 1), float("-inf"), dtype=exact)
        total, mixed = torch.zeros_like(top), q.new_zeros((*q.shape[:3], v.size(-1)), dtype=exact)
        for keys, first, scores in _blocks(q, k, lengths, offset, block):
            old, sums, y = (x[:, :, first:] for x in (top, total, mixed))
            new = torch.maximum(old, scores.amax(-1, keepdim=True))
            base = new.masked_fill(new == float("-inf"), 0.0)  # where nothing was seen yet
            weights, shrink = (scores - base).exp(), (old - base).exp()
            sums.mul_(shrink).add_(weights.sum(-1, keepdim=True))
            y.mul_(shrink).add_(weights.to(v.dtype) @ v[:, :, keys])
            old.copy_(new)
        y = (mixed / total.masked_fill(total == 0, 1.0)).to(v.dtype)
        ctx.save_for_backward(q, k, v, y, top + total.log(), lengths)
        ctx.offset, ctx.block = offset, block
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor):
        q, k, v, y, logs, lengths = ctx.saved_tensors
        exact = logs.dtype
        logs = logs.masked_fill(logs == float("-inf"), 0.0)
        shared = (slope.to(exact) * y).sum(-1, keepdim=True)
        of_q, of_k, of_v = torch.zeros_like(q, dtype=exact), torch.empty_like(k), torch.empty_like(v)
        for keys, first, scores in _blocks(q, k, lengths, ctx.offset, ctx.block):
            weights, sent = (scores - logs[:, :, first:]).exp(), slope[:, :, first:]
            of_v[:, :, keys] = weights.to(v.dtype).mT @ sent
            of_scores = (weights * ((sent @ v[:, :, keys].mT) - shared[:, :, first:])).to(q.dtype)
            of_q[:, :, first:] += of_scores @ k[:, :, keys]
            of_k[:, :, keys] = of_scores.mT @ q[:, :, first:]
        return of_q.to(q.dtype), of_k, of_v, None, None, None


def _blocks(q: Tensor, k: Tensor, lengths: Tensor | None, offset: int | None, block: int) -> Iterator[_Block]:
    """`offset`: where the first query stands if it sees no farther than itself; None: all see everything."""
    exact = torch.promote_types(q.dtype, torch.float32)
    for start in range(0, k.size(2), block):
        keys = slice(start, min(start + block, k.size(2)))
        first = 0 if offset is None else min(max(0, start - offset), q.size(2))
        scores = (q[:, :, first:] @ k[:, :, keys].mT).to(exact)
        key = torch.arange(keys.start, keys.stop, device=q.device)
        if offset is not None:
            at = torch.arange(offset + first, offset + q.size(2), device=q.device)
            scores.masked_fill_(key > at[:, None], float("-inf"))
        elif lengths is not None:
            scores.masked_fill_((key >= lengths[:, None])[:, None, None], float("-inf"))
        yield _Block(keys, first, scores)
