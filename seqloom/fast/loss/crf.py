"""log Z of a linear-chain CRF in training: the forward and the backward pass, whose product is its gradient, together.

Probabilities instead of logarithms, scaled to a sum of 1 at every step (Rabiner 1989, section V.A), in double
precision: a step is one small matmul, where log space needs K exponentials a tag. Exact while the scores of a step span
less than some 600 nats; beyond, weights underflow and the result is not finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.layers.crf import Chain, log_partition, mask_padding
from seqloom.parts.visibility import flip, keep, last


def _supported(scores: Tensor, lengths: Tensor | None, chain: Chain) -> bool:
    return torch.is_grad_enabled()


@twin_of(log_partition, _supported, compiles=True)
def scaled_log_partition(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z, [B]; its gradient is the tags' marginals."""
    return _Partition.apply(scores, lengths, *chain)  # pyright: ignore[reportReturnType]


class _Partition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor | None, *chain: Tensor) -> Tensor:
        start, move, end = (part.double() for part in chain)
        wide = scores.double()
        if lengths is not None:  # padded positions may hold anything, also NaN
            wide = wide.masked_fill(~keep(lengths, scores.size(1))[:, :, None], 0.0)
        tops = (wide.amax(-1), move.amax(), start.amax(), end.amax())
        weights, moves = (wide - tops[0][:, :, None]).exp(), (move - tops[1]).exp()
        ends = torch.stack([start - tops[2], end - tops[3]]).exp()
        ahead, back = _forward_backward(weights, ends, moves, lengths)
        steps = scores.size(1) if lengths is None else lengths
        levels = mask_padding(tops[0] + ahead.scales.log(), lengths).sum(1) + tops[1] * (steps - 1) + tops[2] + tops[3]
        ctx.lengths, ctx.dtypes = lengths, [part.dtype for part in (scores, *chain)]
        ctx.save_for_backward(ahead.normalized, back.normalized, back.predicted, moves)
        return (levels + (last(ahead.normalized, lengths) * ends[1]).sum(-1).log()).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        """Of each score: the tag's marginal; of each transition: its expected count."""
        before, after, after_predicted, moves = ctx.saved_tensors
        together = before * after_predicted
        total = together.sum(-1, keepdim=True)
        grad = grad_outputs[0].double()[:, None, None].expand_as(total)
        if ctx.lengths is not None:
            grad = grad * keep(ctx.lengths, total.size(1))[:, :, None]
        grad_scores, left = together * (grad / total), before[:, :-1]
        # There is no transition from the last real position.
        share = left * (grad[:, 1:] / total[:, :-1])
        grad_move = moves * (share.flatten(0, 1).mT @ after[:, 1:].flatten(0, 1))
        parts = (grad_scores, grad_scores[:, 0].sum(0), grad_move, last(grad_scores, ctx.lengths).sum(0))
        grads = [part.to(dtype) for part, dtype in zip(parts, ctx.dtypes, strict=True)]
        return grads[0], None, *grads[1:]


class _Pass(NamedTuple):
    """One direction of the scaled forward algorithm."""

    predicted: Tensor  # [B, S, K]: before the position's own scores
    normalized: Tensor  # [B, S, K]: with them, scaled to a sum of 1
    scales: Tensor  # [B, S]: the sum before scaling


def _forward_backward(weights: Tensor, ends: Tensor, moves: Tensor, lengths: Tensor | None) -> tuple[_Pass, _Pass]:
    """Forward and backward together: the backward pass is a forward pass over reversed rows with transposed
    transitions. Neither meets padding before a real position, and one batched matmul serves both."""
    both, both_moves = torch.stack([weights, flip(weights, lengths)], 2), torch.stack([moves, moves.mT])
    predicted = [ends[:, None].expand(-1, weights.size(0), -1)]  # [2, B, K]
    normalized, scales = [], []
    for t in range(weights.size(1)):
        if t:
            predicted.append(normalized[-1] @ both_moves)
        weighted = predicted[-1] * both[:, t].transpose(0, 1)
        scales.append(weighted.sum(-1, keepdim=True))
        normalized.append(weighted / scales[-1])
    before, after, total = (torch.stack(part, 2) for part in (predicted, normalized, scales))  # [2, B, S, K or 1]
    back = _Pass(flip(before[1], lengths), flip(after[1], lengths), total[1, :, :, 0])
    return _Pass(before[0], after[0], total[0, :, :, 0]), back
