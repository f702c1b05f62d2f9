"""Exact attention over one block of keys at a time: quadratic in time, but not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import EfficientAttention, at_least, dense_attention
from seqloom.parts.visibility import Visibility


class Blockwise(EfficientAttention):
    """softmax(q·kᵀ / √d) v, one block of keys at a time, with the running maximum m and sum l of each query:
    m' = max(m, max s), l' = e^(m − m')·l + Σ e^(s − m'), y' = e^(m − m')·y + e^(s − m') v, in the end y / l (Rabe &
    Staats 2021, https://arxiv.org/abs/2112.05682; Milakov & Gimelshein 2018).

    The backward pass computes the weights again, so memory is length times `block`. Reports its weights, [B, heads, T,
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
        if self.probe is not None:
            return dense_attention(q, k, v, visible, self.probe), state
        return blockwise(q, k, v, visible, self.block), state


@accelerated
def blockwise(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, block: int) -> Tensor:
    """softmax(q·kᵀ) v over visible keys, all [B, heads, T or S, D]."""
    return _Blockwise.apply(q, k, v, visible.lengths, visible.offset if visible.causal else None, block)  # pyright: ignore


class _Block(NamedTuple):
    keys: slice
    first: int  # the first query that sees any of these keys
    scores: Tensor  # [B, heads, T − first, block], −inf where a key is hidden


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, offset: int | None, block: int):
        exact = torch.promote_types(q.dtype, torch.float32)
        maximum = q.new_full((*q.shape[:3], 1), float("-inf"), dtype=exact)
        total, output = torch.zeros_like(maximum), q.new_zeros((*q.shape[:3], v.size(-1)), dtype=exact)
        for keys, first, scores in _blocks(q, k, lengths, offset, block):
            old, sums, y = (x[:, :, first:] for x in (maximum, total, output))
            new = torch.maximum(old, scores.amax(-1, keepdim=True))
            base = new.masked_fill(new == float("-inf"), 0.0)  # no key visible so far
            weights, shrink = (scores - base).exp(), (old - base).exp()
            sums.mul_(shrink).add_(weights.sum(-1, keepdim=True))
            y.mul_(shrink).add_(weights.to(v.dtype) @ v[:, :, keys])
            old.copy_(new)
        y = (output / total.masked_fill(total == 0, 1.0)).to(v.dtype)
        ctx.save_for_backward(q, k, v, y, maximum + total.log(), lengths)
        ctx.offset, ctx.block = offset, block
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor):
        q, k, v, y, logsumexp, lengths = ctx.saved_tensors
        exact = logsumexp.dtype
        logsumexp = logsumexp.masked_fill(logsumexp == float("-inf"), 0.0)
        row_dot = (grad_output.to(exact) * y).sum(-1, keepdim=True)
        grad_q, grad_k, grad_v = torch.zeros_like(q, dtype=exact), torch.empty_like(k), torch.empty_like(v)
        for keys, first, scores in _blocks(q, k, lengths, ctx.offset, ctx.block):
            weights, grad_y = (scores - logsumexp[:, :, first:]).exp(), grad_output[:, :, first:]
            grad_v[:, :, keys] = weights.to(v.dtype).mT @ grad_y
            grad_scores = (weights * ((grad_y @ v[:, :, keys].mT) - row_dot[:, :, first:])).to(q.dtype)
            grad_q[:, :, first:] += grad_scores @ k[:, :, keys]
            grad_k[:, :, keys] = grad_scores.mT @ q[:, :, first:]
        return grad_q.to(q.dtype), grad_k, grad_v, None, None, None


def _blocks(q: Tensor, k: Tensor, lengths: Tensor | None, offset: int | None, block: int) -> Iterator[_Block]:
    """`offset`: the position of the first query under a causal mask; None: every query sees all keys."""
    exact = torch.promote_types(q.dtype, torch.float32)
    for start in range(0, k.size(2), block):
        keys = slice(start, min(start + block, k.size(2)))
        first = 0 if offset is None else min(max(0, start - offset), q.size(2))
        scores = (q[:, :, first:] @ k[:, :, keys].mT).to(exact)
        key = torch.arange(keys.start, keys.stop, device=q.device)
        if offset is not None:
            query = torch.arange(offset + first, offset + q.size(2), device=q.device)
            scores.masked_fill_(key > query[:, None], float("-inf"))
        elif lengths is not None:
            scores.masked_fill_((key >= lengths[:, None])[:, None, None], float("-inf"))
        yield _Block(keys, first, scores)
