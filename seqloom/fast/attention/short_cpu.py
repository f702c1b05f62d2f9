"""softmax(q kᵀ) v on a CPU by plain products, with its gradient written out. Torch's fused kernel is made for long
rows: on rows of ten, and in half precision of a few hundred, plain products are up to three times as fast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Weights of a head at most, in full and in half precision: they are kept for the way back, and beyond some number the
# fused kernel, which keeps none, is as quick.
CELLS = {4: 1 << 12, 2: 1 << 17}
BRIEF = 32  # queries or keys of a row at most, without gradients
ROWS = 32  # rows and heads at least: for fewer the fused kernel is one call in the place of six
STRIPE = 64  # queries at a time under a triangle: what lies above it is not computed


def worth(q: Tensor, k: Tensor) -> bool:
    """[B, heads, T, D] and [B, heads, S, D]: whether to go this way. Without gradients fewer operations count more."""
    here = (
        torch.is_grad_enabled()
        and q.device.type == "cpu"
        and q.dim() == 4
        and q.size(-2) > 1
        and not torch.compiler.is_compiling()
    )
    most = CELLS.get(q.dtype.itemsize, CELLS[4])
    return here and q.size(-2) * k.size(-2) <= most and q.shape[:2] == k.shape[:2]


def mixed(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None, causal: bool = False) -> Tensor:
    """q [B, heads, T, D], k [B, heads, S, D], v [B, heads, S, E] -> [B, heads, T, E]; `keep` [B, 1, 1, S] or `causal`
    says what may be seen. A query that may look nowhere gets zeros."""
    if torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu")
        q, k, v = q.to(half), k.to(half), v.to(half)
    with torch.autocast("cpu", enabled=False):
        return _Mixed.apply(q, k, v, keep, causal)


def several(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """The same without gradients, of few queries and with a bias [B, 1, T or 1, S] that is added to the scores."""
    q = torch.mul(q, scale, out=q.new_empty(q.shape))  # in one piece: the product would copy it otherwise
    scores = torch.matmul(q, k.mT)
    return torch.matmul((scores if bias is None else scores.add_(bias)).softmax(-1), v)


def brief(q: Tensor, k: Tensor) -> bool:
    """[B, heads, T, D] and [B, heads, S, D]: whether to go by `briefly`. One wide head gains nothing by it."""
    here = q.device.type == "cpu" and q.dtype == torch.float32 and not torch.is_grad_enabled()
    small = 1 < q.size(-2) <= BRIEF and k.size(-2) <= BRIEF and q.size(0) * q.size(1) >= ROWS and q.size(1) > 1
    return here and small and q.shape[:2] == k.shape[:2] and not torch.compiler.is_compiling()


def briefly(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, scale: float) -> Tensor:
    """`mixed` without gradients, of short rows. Scores lie with a key in a row, [S, T], since a softmax over columns is
    done for many at once, and one over ten numbers in a row is not."""
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


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        b, heads, t, _ = q.shape
        q3, k3, v3 = (part.reshape(b * heads, part.size(2), part.size(3)) for part in (q, k, v))
        ends, found, weights = _stripes(t, causal), [], []
        for first, end in ends:
            seen = end if causal else k.size(2)
            scores = torch.bmm(q3[:, first:end], k3[:, :seen].mT)
            if causal:
                scores[:, :, first:] += _triangle(end - first, scores)
            if keep is not None:
                scores.view(b, heads, t, seen).masked_fill_(~keep, torch.finfo(q.dtype).min)
            weight = scores.softmax(-1)
            if keep is not None:
                weight.view(b, heads, t, seen).mul_(keep)
            found.append(torch.bmm(weight, v3[:, :seen]))
            weights.append(weight)
        ctx.ends = ends
        ctx.save_for_backward(q3, k3, v3, *weights)
        return (found[0] if len(found) == 1 else torch.cat(found, 1)).view(b, heads, t, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, v, *weights = ctx.saved_tensors
        b, heads, t, _ = slopes[0].shape
        slope = slopes[0].reshape(b * heads, t, -1)
        by_q, by_k, by_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        # From the last stripe on, which sees every key: it sets what the others add to.
        for (first, end), weight in zip(reversed(ctx.ends), reversed(weights), strict=True):
            seen, mine, add = weight.size(2), slope[:, first:end], float(end < t)
            torch.baddbmm(by_v[:, :seen], weight.mT, mine, beta=add, out=by_v[:, :seen])
            by_weight = torch.bmm(mine, v[:, :seen].mT)
            by_score = torch.ops.aten._softmax_backward_data(by_weight, weight, -1, weight.dtype)
            torch.bmm(by_score, k[:, :seen], out=by_q[:, first:end])
            torch.baddbmm(by_k[:, :seen], by_score.mT, q[:, first:end], beta=add, out=by_k[:, :seen])
        return *(part.view(b, heads, part.size(1), -1) for part in (by_q, by_k, by_v)), None, None


def _stripes(t: int, causal: bool) -> list[tuple[int, int]]:
    """Queries from and to, stripe by stripe."""
    size = STRIPE if causal and t > 2 * STRIPE else t
    return [(first, min(first + size, t)) for first in range(0, t, size)]


def _triangle(size: int, like: Tensor) -> Tensor:
    return torch.full((size, size), float("-inf"), dtype=like.dtype).triu_(1)
