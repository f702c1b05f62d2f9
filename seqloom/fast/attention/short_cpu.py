"""softmax(q kᵀ) v on a CPU by plain matmuls, with an explicit backward pass. Torch's fused kernel is made for long
sequences: on ten positions, and in half precision on a few hundred, plain matmuls are up to three times as fast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# T · S at most, by bytes of a number: the weights are saved for the backward pass, and for more of them the fused
# kernel, which saves none, is as fast.
MAX_WEIGHTS = {4: 1 << 12, 2: 1 << 17}
MAX_LENGTH_NO_GRAD = 32  # queries or keys at most, without gradients
MIN_BATCH_HEADS = 32  # B · heads at least: with fewer, the fused kernel is one call instead of six
QUERY_BLOCK = 64  # queries at a time with a causal mask: keys after the last of them are skipped


def short_attention_supported(q: Tensor, k: Tensor) -> bool:
    """q [B, heads, T, D] and k [B, heads, S, D]. In training only: without gradients the number of operations
    decides."""
    available = (
        torch.is_grad_enabled()
        and q.device.type == "cpu"
        and q.dim() == 4
        and q.size(-2) > 1
        and not torch.compiler.is_compiling()
    )
    most = MAX_WEIGHTS.get(q.dtype.itemsize, MAX_WEIGHTS[4])
    return available and q.size(-2) * k.size(-2) <= most and q.shape[:2] == k.shape[:2]


def short_attention(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None, causal: bool = False) -> Tensor:
    """q [B, heads, T, D], k [B, heads, S, D], v [B, heads, S, E] -> [B, heads, T, E]; masked by `keep`
    [B, 1, 1, S] or `causal`. A query without visible keys gets zeros."""
    if torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu")
        q, k, v = q.to(half), k.to(half), v.to(half)
    with torch.autocast("cpu", enabled=False):
        return _ShortAttention.apply(q, k, v, keep, causal)


def biased_attention_no_grad(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """The same without gradients, for few queries, with a bias [B, 1, T or 1, S] added to the scores."""
    q = torch.mul(q, scale, out=q.new_empty(q.shape))  # contiguous: the matmul would copy it otherwise
    scores = torch.matmul(q, k.mT)
    return torch.matmul((scores if bias is None else scores.add_(bias)).softmax(-1), v)


def short_attention_no_grad_supported(q: Tensor, k: Tensor) -> bool:
    """q [B, heads, T, D] and k [B, heads, S, D]. One wide head gains nothing."""
    available = q.device.type == "cpu" and q.dtype == torch.float32 and not torch.is_grad_enabled()
    small = (
        1 < q.size(-2) <= MAX_LENGTH_NO_GRAD
        and k.size(-2) <= MAX_LENGTH_NO_GRAD
        and q.size(0) * q.size(1) >= MIN_BATCH_HEADS
        and q.size(1) > 1
    )
    return available and small and q.shape[:2] == k.shape[:2] and not torch.compiler.is_compiling()


def short_attention_no_grad(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    """`short_attention` without gradients. Scores are [S, T], a key a row: a softmax over columns is vectorized, one
    over rows of ten numbers is not."""
    b, heads, t, _ = q.shape
    q, k, v = (part.reshape(b * heads, part.size(2), part.size(3)) for part in (q * scale, k, v))
    scores = torch.bmm(k, q.mT)
    if keep is None:
        weights = scores.softmax(1)
    else:
        scores.view(b, heads, -1, t).masked_fill_(~keep.mT, torch.finfo(scores.dtype).min)
        weights = scores.softmax(1)
        weights.view(b, heads, -1, t).mul_(keep.mT)
    return torch.bmm(weights.mT, v).view(b, heads, t, -1)


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        b, heads, t, _ = q.shape
        q3, k3, v3 = (part.reshape(b * heads, part.size(2), part.size(3)) for part in (q, k, v))
        blocks, outputs, weights = _query_blocks(t, causal), [], []
        for first, end in blocks:
            seen = end if causal else k.size(2)
            scores = torch.bmm(q3[:, first:end], k3[:, :seen].mT)
            if causal:
                scores[:, :, first:] += scores.new_full((end - first,) * 2, float("-inf")).triu_(1)
            if keep is not None:
                scores.view(b, heads, t, seen).masked_fill_(~keep, torch.finfo(q.dtype).min)
            weight = scores.softmax(-1)
            if keep is not None:
                weight.view(b, heads, t, seen).mul_(keep)
            outputs.append(torch.bmm(weight, v3[:, :seen]))
            weights.append(weight)
        ctx.blocks = blocks
        ctx.save_for_backward(q3, k3, v3, *weights)
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)).view(b, heads, t, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, v, *weights = ctx.saved_tensors
        b, heads, t, _ = grad_outputs[0].shape
        grad_output = grad_outputs[0].reshape(b * heads, t, -1)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        # From the last block, which sees every key and sets the gradients that the others add to.
        for (first, end), weight in zip(reversed(ctx.blocks), reversed(weights), strict=True):
            seen, grad_block, add = weight.size(2), grad_output[:, first:end], float(end < t)
            torch.baddbmm(grad_v[:, :seen], weight.mT, grad_block, beta=add, out=grad_v[:, :seen])
            grad_weight = torch.bmm(grad_block, v[:, :seen].mT)
            grad_score = torch.ops.aten._softmax_backward_data(grad_weight, weight, -1, weight.dtype)
            torch.bmm(grad_score, k[:, :seen], out=grad_q[:, first:end])
            torch.baddbmm(grad_k[:, :seen], grad_score.mT, q[:, first:end], beta=add, out=grad_k[:, :seen])
        return *(part.view(b, heads, part.size(1), -1) for part in (grad_q, grad_k, grad_v)), None, None


def _query_blocks(t: int, causal: bool) -> list[tuple[int, int]]:
    """(first, end) of each block of queries."""
    size = QUERY_BLOCK if causal and t > 2 * QUERY_BLOCK else t
    return [(first, min(first + size, t)) for first in range(0, t, size)]
