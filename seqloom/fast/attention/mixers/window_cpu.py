"""Sliding-window attention on a CPU: blocks of queries over overlapping views of the keys, which are not copied for
each block. The backward pass recomputes the weights, so that the working set stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.acceleration import twin_of
from seqloom.parts.mixers.efficient_attention import pad_time
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.visibility import Visibility

BLOCK = 64  # queries in a block: one thread multiplies matrices of this size alone, so results stay in its cache
GROUP = 32  # blocks at a time
MIN_LENGTH = 2048  # positions; for fewer, copying the keys for all blocks at once is faster
MASKED = -1e30  # added to masked scores; finite, since padding queries of the last block see no key


def supported(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> bool:
    available = q.device.type == "cpu" and q.dtype == k.dtype == v.dtype
    return available and q.size(2) >= MIN_LENGTH and (visible.window or 0) >= BLOCK


@twin_of(window_attention, supported)
def sliced_window_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """Lengths are applied, and padded queries get zeros, unless `visible` is causal."""
    n, dtype = q.size(2), torch.promote_types(q.dtype, torch.float32)
    lengths = [n] * q.size(0) if visible.causal or visible.lengths is None else visible.lengths.tolist()
    shape = Window(visible.window or 1, visible.causal, min(first, n))
    with torch.autocast("cpu", enabled=False):
        return _WindowAttention.apply(q.to(dtype), k.to(dtype), v.to(dtype), lengths, shape).to(q.dtype)  # pyright: ignore


class Window(NamedTuple):
    window: int
    causal: bool
    first: int

    @property
    def blocks_behind(self) -> int:
        return -(-(self.window - 1) // BLOCK)

    @property
    def blocks_ahead(self) -> int:
        """Blocks of keys after its own that a block of queries sees."""
        return 0 if self.causal else self.blocks_behind

    @property
    def span(self) -> int:
        return (self.blocks_behind + 1 + self.blocks_ahead) * BLOCK

    def mask_bias(self, like: Tensor) -> Tensor:
        """[BLOCK, span]: added to the scores of every block."""
        distance = torch.arange(BLOCK)[:, None] + self.blocks_behind * BLOCK - torch.arange(self.span)
        visible = (distance < self.window) & (distance > (-1 if self.causal else -self.window))
        return torch.where(visible, 0.0, MASKED).to(like.dtype)


class _Row:
    """Queries of one row, [heads, T, D], in blocks; its keys and values in the spans that these blocks see."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, shape: Window, mask_bias: Tensor) -> None:
        self.n, self.first = q.size(1), min(shape.first, q.size(1))
        self.shape, self.mask_bias = shape, mask_bias
        self.count = block_count(self.n)
        self.q = self.to_blocks(q)  # [heads, N, BLOCK, D]
        padding = (shape.blocks_behind * BLOCK, (self.count + shape.blocks_ahead) * BLOCK - self.n)
        self.k, self.v = (pad_time(x, *padding).unfold(1, shape.span, BLOCK) for x in (k, v))  # [heads, N, D, span]
        self.first_keys = [x[:, : self.first].mT for x in (k, v)]  # [heads, D, first]

    def to_blocks(self, x: Tensor) -> Tensor:
        return pad_time(x, 0, self.count * BLOCK - self.n).unflatten(1, (self.count, BLOCK))

    def groups(self, step: int = 1) -> Iterator[tuple[int, slice]]:
        """(head, blocks): groups of blocks `step` apart."""
        for head in range(self.q.size(0)):
            for start in range(min(step, self.count)):
                for i in range(start, self.count, step * GROUP):
                    yield head, slice(i, min(i + step * GROUP, self.count), step)

    def weights(self, head: int, blocks: slice) -> Tensor:
        """[G, BLOCK, first + span]"""
        scores = _scores(self.q[head, blocks], self.k[head, blocks], self.first_keys[0][head])
        window_scores = scores[..., self.first :]
        window_scores += self.mask_bias
        for number, block in enumerate(range(blocks.start, blocks.stop, blocks.step)):
            start = (block - self.shape.blocks_behind) * BLOCK
            if start < self.first:
                window_scores[number, :, : self.first - start] = MASKED
            if start + self.shape.span > self.n:
                window_scores[number, :, self.n - start :] = MASKED
            if self.shape.causal and block * BLOCK < self.first:
                index = torch.arange(block * BLOCK, (block + 1) * BLOCK)
                scores[number, :, : self.first].masked_fill_(torch.arange(self.first) > index[:, None], MASKED)
        return scores.softmax(-1)


def block_count(n: int) -> int:
    return -(-n // BLOCK)


def _scores(x: Tensor, keys: Tensor, first_keys: Tensor) -> Tensor:
    """x [G, BLOCK, D] with keys [G, D, span] and [D, first] -> [G, BLOCK, first + span]."""
    window_scores = torch.bmm(x, keys)
    return torch.cat([x @ first_keys, window_scores], -1) if first_keys.size(-1) else window_scores


def _weighted_sum(weights: Tensor, values: Tensor, first_keys: Tensor) -> Tensor:
    """weights [G, BLOCK, first + span], values [G, D, span] and [D, first] -> [G, BLOCK, D]."""
    first = first_keys.size(-1)
    output = torch.bmm(weights[..., first:], values.mT)
    return output.add_(weights[..., :first] @ first_keys.mT) if first else output


class _WindowAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: list[int], shape: Window) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.lengths, ctx.shape, mask_bias = lengths, shape, shape.mask_bias(q)
        y = _empty_blocks(v)
        for number, n in enumerate(lengths):
            row = _Row(q[number, :, :n], k[number, :, :n], v[number, :, :n], shape, mask_bias)
            outputs = y[number].unflatten(1, (-1, BLOCK))
            for head, blocks in row.groups():
                outputs[head, blocks] = _weighted_sum(
                    row.weights(head, blocks), row.v[head, blocks], row.first_keys[1][head]
                )
            y[number, :, n:] = 0
        return y[:, :, : q.size(2)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (q, k, v), shape = ctx.saved_tensors, ctx.shape
        grad_q, grad_k, grad_v, mask_bias = _empty_blocks(q), _GradSum(k, shape), _GradSum(v, shape), shape.mask_bias(q)
        for number, n in enumerate(ctx.lengths):
            row = _Row(q[number, :, :n], k[number, :, :n], v[number, :, :n], shape, mask_bias)
            grad_blocks, grad_rows = row.to_blocks(grad_output[number, :, :n]), grad_q[number].unflatten(1, (-1, BLOCK))
            # Far enough apart that no two blocks of a group see the same key
            for head, blocks in row.groups(shape.span // BLOCK):
                queries, grads, weights = row.q[head, blocks], grad_blocks[head, blocks], row.weights(head, blocks)
                grad_v.add((number, head), blocks, weights, grads)
                grad_weights = _scores(grads, row.v[head, blocks], row.first_keys[1][head])
                grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
                grad_k.add((number, head), blocks, grad_scores, queries)
                grad_rows[head, blocks] = _weighted_sum(grad_scores, row.k[head, blocks], row.first_keys[0][head])
            grad_q[number, :, n:] = 0
        return grad_q[:, :, : grad_output.size(2)], grad_k.total(), grad_v.total(), None, None


def _empty_blocks(x: Tensor) -> Tensor:
    """Uninitialized [B, heads, T, D] with T rounded up to whole blocks."""
    return x.new_empty(*x.shape[:2], block_count(x.size(2)) * BLOCK, x.size(3))


class _GradSum:
    """The gradient of keys or values [B, heads, T, D], summed block by block."""

    def __init__(self, x: Tensor, shape: Window) -> None:
        self.shape, self.n = shape, x.size(2)
        count = block_count(self.n) + 2 * shape.span // BLOCK
        self.sums = x.new_zeros(*x.shape[:2], count, BLOCK, x.size(3))
        self.first_keys = x.new_zeros(*x.shape[:2], shape.first, x.size(3))

    def add(self, index: tuple[int, int], blocks: slice, weights: Tensor, x: Tensor) -> None:
        """Adds weightsᵀ x: [G, BLOCK, first + span] and [G, BLOCK, D]."""
        first = weights.size(-1) - self.shape.span
        visible = self.sums[index][blocks.start : blocks.start + len(x) * blocks.step].view(len(x), -1, x.size(-1))
        visible.baddbmm_(weights[..., first:].mT, x)
        if first:
            self.first_keys[index][:first] += weights[..., :first].flatten(0, 1).mT @ x.flatten(0, 1)

    def total(self) -> Tensor:
        start = self.shape.blocks_behind * BLOCK
        grad = self.sums.flatten(2, 3)[:, :, start : start + self.n]
        grad[:, :, : self.shape.first] += self.first_keys
        return grad
