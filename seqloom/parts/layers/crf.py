"""Outputs of a tagger, from tag scores to tags: a softmax at each position, or a linear-chain CRF.

Both have `forward` (log-likelihood of given tags), `best` (the most likely tags) and `marginals`. Shapes: scores
[B, S, K] of K tags; lengths [B], None where no row is padded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.visibility import flip, keep, last


class Allowed(NamedTuple):
    """Which tags may start a sequence, follow each other (row: from, column: to) and end it; True where allowed."""

    start: Tensor  # [K] bool
    move: Tensor  # [K, K] bool
    end: Tensor  # [K] bool


class Softmax(nn.Module):
    """Tags are independent given the states (Bishop 1995, section 6.9)."""

    def __init__(self, tags: int) -> None:
        super().__init__()

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]. `smoothing`: the share of each label's probability spread over all tags."""
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        log_p = -F.cross_entropy(scores.mT, tags, reduction="none", label_smoothing=smoothing)
        return mask_padding(log_p, lengths).sum(1)

    def best(self, scores: Tensor, lengths: Tensor | None, allowed: Allowed | None = None) -> Tensor:
        """The most likely tags, [B, S]; with `allowed`, the most likely allowed sequence."""
        if allowed is None:
            return scores.argmax(-1)
        zero = scores.new_zeros(scores.size(-1))
        return viterbi(scores, lengths, constrained(zero, zero.expand(len(zero), -1), zero, allowed))

    def marginals(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        """log p(tag at each position), [B, S, K]."""
        return scores.log_softmax(-1)


class CRF(nn.Module):
    """Linear-chain conditional random field (Lafferty et al. 2001; over a recurrent network: Huang et al. 2015):

    p(y | x) = exp(start[y_1] + Σ_t scores[t, y_t] + Σ_t move[y_t, y_t+1] + end[y_n]) / Z(x)

    Z sums over all tag sequences, by the forward algorithm. Training uses `log_partition`, which computes forward and
    backward together; its plain twin `log_partition_plain` is the textbook's, with equal values and gradients.
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))
        self.move = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]. Labels are not smoothed: a CRF has no separate distribution at each position."""
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        partition = log_partition if torch.is_grad_enabled() else log_partition_plain
        return self.path_score(scores, tags, lengths) - partition(scores, lengths, self.chain(scores))

    def path_score(self, scores: Tensor, tags: Tensor, lengths: Tensor | None) -> Tensor:
        """The score of given tags, [B]."""
        start, move, end = self.chain(scores)
        unary = mask_padding(scores.gather(2, tags[:, :, None])[:, :, 0], lengths)
        moves = mask_padding(move[tags[:, :-1], tags[:, 1:]], None if lengths is None else lengths - 1)
        return start[tags[:, 0]] + unary.sum(1) + moves.sum(1) + end[last(tags, lengths)]

    def best(self, scores: Tensor, lengths: Tensor | None, allowed: Allowed | None = None) -> Tensor:
        """The most likely tag sequence, [B, S]; with `allowed`, of the allowed ones."""
        chain = self.chain(scores)
        return viterbi(scores, lengths, chain if allowed is None else constrained(*chain, allowed))

    def marginals(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        """log p(tag at each position), [B, S, K], by forward-backward (Rabiner 1989, section III.A)."""
        start, move, end = self.chain(scores)
        before = forward_scores(scores, start, move)
        after = flip(forward_scores(flip(scores, lengths), end, move.mT), lengths)
        return (before + after - scores).log_softmax(-1)

    def chain(self, like: Tensor) -> Chain:
        """The parameters in the precision of the scores."""
        return Chain(*(part.to(like.dtype) for part in (self.start, self.move, self.end)))


class Chain(NamedTuple):
    start: Tensor  # [K]
    move: Tensor  # [K, K]: transitions from the row's tag to the column's
    end: Tensor  # [K]


TAG_OUTPUTS = {"softmax": Softmax, "crf": CRF}


def mask_padding(values: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S] with zeros at padded positions."""
    return values if lengths is None else values.masked_fill(~keep(lengths, values.size(1)), 0.0)


def constrained(start: Tensor, move: Tensor, end: Tensor, allowed: Allowed) -> Chain:
    """A chain with −inf for what is not allowed."""
    pairs = zip((start, move, end), allowed, strict=True)
    return Chain(*(scores.masked_fill(~may.to(scores.device), -torch.inf) for scores, may in pairs))


def forward_scores(scores: Tensor, start: Tensor, move: Tensor) -> Tensor:
    """log α, [B, S, K]: log Σ over all tag prefixes that end in each tag (Rabiner 1989, equations 19 to 21).

    Padded positions do not change those before: take the one at each row's last real position.
    """
    alpha = [start + scores[:, 0]]
    for t in range(1, scores.size(1)):
        alpha.append((alpha[-1][:, :, None] + move).logsumexp(1) + scores[:, t])
    return torch.stack(alpha, 1)


def log_partition_plain(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z, [B]: the forward algorithm in log space, step by step."""
    return (last(forward_scores(scores, chain.start, chain.move), lengths) + chain.end).logsumexp(-1)


def log_partition(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z, [B]; its gradient, the tags' marginals, comes from forward and backward passes computed together.

    Probabilities instead of logarithms, scaled to a sum of 1 at every step (Rabiner 1989, section V.A), in double
    precision: a step is one small matmul, where log space needs K exponentials a tag. Exact while the scores of a step
    span less than some 600 nats; beyond, weights underflow and the result is not finite.
    """
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


def viterbi(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """The tag sequence with the highest score, [B, S] (Viterbi 1967; Forney 1973); zeros at padded positions."""
    here, pointers = chain.start + scores[:, 0], []
    best = [here]
    for t in range(1, scores.size(1)):
        here, before = (here[:, :, None] + chain.move).max(1)
        here = here + scores[:, t]
        best.append(here)
        pointers.append(before)
    end = torch.full_like(scores[:, 0, 0], scores.size(1) - 1, dtype=torch.long) if lengths is None else lengths - 1
    final = (last(torch.stack(best, 1), lengths) + chain.end).argmax(-1)
    tag, reversed_tags = final, [final]
    for t in range(scores.size(1) - 2, -1, -1):
        # Rows that end here or earlier have not started to backtrack.
        tag = torch.where(end > t, pointers[t].gather(1, tag[:, None])[:, 0], final)
        reversed_tags.append(tag)
    tags = torch.stack(reversed_tags[::-1], 1)
    return tags if lengths is None else tags.masked_fill(~keep(lengths, scores.size(1)), 0)
