"""Outputs of a tagger, from tag scores to tags: a softmax at each position, or a linear-chain CRF.

Both have `forward` (log-likelihood of given tags), `best` (the most likely tags) and `marginals`. Shapes: scores
[B, S, K] of K tags; lengths [B], None where no row is padded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated
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

    Z sums over all tag sequences, by the forward algorithm.
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))
        self.move = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]. Labels are not smoothed: a CRF has no separate distribution at each position."""
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        return self.path_score(scores, tags, lengths) - log_partition(scores, lengths, self.chain(scores))

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
        alpha = forward_scores(scores, start, move)
        beta = flip(forward_scores(flip(scores, lengths), end, move.mT), lengths)
        return (alpha + beta - scores).log_softmax(-1)  # a position's own scores are in both

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


@accelerated
def log_partition(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z = log Σ_k α_n(k) exp(end[k]), [B]: the forward algorithm (Rabiner 1989, equation 21)."""
    return (last(forward_scores(scores, chain.start, chain.move), lengths) + chain.end).logsumexp(-1)


def viterbi(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """The tag sequence with the highest score, [B, S] (Viterbi 1967; Forney 1973); zeros at padded positions."""
    delta, pointers = [chain.start + scores[:, 0]], []  # the best score of a prefix that ends in each tag
    for t in range(1, scores.size(1)):
        best, before = (delta[-1][:, :, None] + chain.move).max(1)
        delta.append(best + scores[:, t])
        pointers.append(before)
    end = torch.full_like(scores[:, 0, 0], scores.size(1) - 1, dtype=torch.long) if lengths is None else lengths - 1
    final = (last(torch.stack(delta, 1), lengths) + chain.end).argmax(-1)
    tag, reversed_tags = final, [final]
    for t in range(scores.size(1) - 2, -1, -1):
        # Rows that end here or earlier have not started to backtrack.
        tag = torch.where(end > t, pointers[t].gather(1, tag[:, None])[:, 0], final)
        reversed_tags.append(tag)
    tags = torch.stack(reversed_tags[::-1], 1)
    return tags if lengths is None else tags.masked_fill(~keep(lengths, scores.size(1)), 0)
