"""What turns the scores of tags at each place into tags: a softmax at every place, or a chain over all of them.

Both have `forward` (log-likelihood of given tags), `best` (the likeliest tags) and `marginals`. Shapes: scores [B, S,
K] of K tags; lengths [B] of rows padded after, None where all are full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.visibility import flip, keep, last


class Allowed(NamedTuple):
    """Which tags may begin a row, follow one another (row: before, column: after) and end a row; True where allowed."""

    start: Tensor  # [K] bool
    move: Tensor  # [K, K] bool
    end: Tensor  # [K] bool


class Softmax(nn.Module):
    """Every tag is chosen for itself, given the states (Bishop 1995, section 6.9)."""

    def __init__(self, tags: int) -> None:
        super().__init__()

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]. `smoothing` spreads a share of each label's mass over all tags."""
        spread = {"reduction": "none", "label_smoothing": smoothing}
        found = -F.cross_entropy(scores.float().mT if scores.dtype.itemsize < 4 else scores.mT, tags, **spread)
        return real(found, lengths).sum(1)

    def best(self, scores: Tensor, lengths: Tensor | None, allowed: Allowed | None = None) -> Tensor:
        """The likeliest tags, [B, S]; with `allowed`, the likeliest row of tags that keeps to it."""
        if allowed is None:
            return scores.argmax(-1)
        none = scores.new_zeros(scores.size(-1))
        return viterbi(scores, lengths, barred(none, none.expand(len(none), -1), none, allowed))

    def marginals(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        """log p(tag at each place), [B, S, K]."""
        return scores.log_softmax(-1)


class CRF(nn.Module):
    """Linear-chain conditional random field (Lafferty et al. 2001; over a recurrent network: Huang et al. 2015):

    p(y | x) = exp(start[y_1] + Σ_t scores[t, y_t] + Σ_t move[y_t, y_t+1] + end[y_n]) / Z(x)

    Z sums over all rows of tags, by the forward algorithm. Training takes `log_partition`, in which both directions run
    at once; its plain twin `log_partition_plain` is the textbook's, and gives the same values and gradients.
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))
        self.move = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, scores: Tensor, tags: Tensor, lengths: Tensor | None, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]. Labels are not smoothed: the chain has no distribution of its own at a place."""
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        partition = log_partition if torch.is_grad_enabled() else log_partition_plain
        return self.path(scores, tags, lengths) - partition(scores, lengths, self.chain(scores))

    def path(self, scores: Tensor, tags: Tensor, lengths: Tensor | None) -> Tensor:
        """The score of given tags, [B]."""
        start, move, end = self.chain(scores)
        places = real(scores.gather(2, tags[:, :, None])[:, :, 0], lengths)
        moves = real(move[tags[:, :-1], tags[:, 1:]], None if lengths is None else lengths - 1)
        return start[tags[:, 0]] + places.sum(1) + moves.sum(1) + end[last(tags, lengths)]

    def best(self, scores: Tensor, lengths: Tensor | None, allowed: Allowed | None = None) -> Tensor:
        """The likeliest row of tags, [B, S]; with `allowed`, of those that keep to it."""
        chain = self.chain(scores)
        return viterbi(scores, lengths, chain if allowed is None else barred(*chain, allowed))

    def marginals(self, scores: Tensor, lengths: Tensor | None) -> Tensor:
        """log p(tag at each place), [B, S, K], by forward-backward (Rabiner 1989, section III.A)."""
        start, move, end = self.chain(scores)
        before = alphas(scores, start, move)
        after = flip(alphas(flip(scores, lengths), end, move.mT), lengths)
        return (before + after - scores).log_softmax(-1)

    def chain(self, like: Tensor) -> Chain:
        """Its own parameters, in the precision of the scores."""
        return Chain(*(part.to(like.dtype) for part in (self.start, self.move, self.end)))


class Chain(NamedTuple):
    start: Tensor  # [K]
    move: Tensor  # [K, K]: from the row's tag to the column's
    end: Tensor  # [K]


OUTPUTS = {"softmax": Softmax, "crf": CRF}


def real(values: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S] with zeros at padded places."""
    return values if lengths is None else values.masked_fill(~keep(lengths, values.size(1)), 0.0)


def barred(start: Tensor, move: Tensor, end: Tensor, allowed: Allowed) -> Chain:
    """A chain in which what is not allowed never happens."""
    pairs = zip((start, move, end), allowed, strict=True)
    return Chain(*(scores.masked_fill(~may.to(scores.device), -torch.inf) for scores, may in pairs))


def alphas(scores: Tensor, start: Tensor, move: Tensor) -> Tensor:
    """log Σ over all beginnings of a row that end in each tag, [B, S, K] (Rabiner 1989, equations 19 to 21).

    What stands at a padded place changes nothing before it: take the row's last real one.
    """
    found = [start + scores[:, 0]]
    for t in range(1, scores.size(1)):
        found.append((found[-1][:, :, None] + move).logsumexp(1) + scores[:, t])
    return torch.stack(found, 1)


def log_partition_plain(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z, [B]: the forward algorithm in log space, step by step."""
    return (last(alphas(scores, chain.start, chain.move), lengths) + chain.end).logsumexp(-1)


def log_partition(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """log Z, [B], and ready with it its gradient: tags' marginals, by forward and backward passes side by side.

    Weights instead of logarithms, with a sum of 1 at every step (Rabiner 1989, section V.A), in double precision: a
    step is one small matrix product where log space needs K exponentials a tag. Exact as long as what can be chosen
    at one step spans less than some 600 nats; beyond that the weights vanish and the result is not finite.
    """
    return _Partition.apply(scores, lengths, *chain)  # pyright: ignore[reportReturnType]


class _Partition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor | None, *chain: Tensor) -> Tensor:
        start, move, end = (part.double() for part in chain)
        wide = scores.double()
        if lengths is not None:  # junk at padded places must not become a weight that is no number
            wide = wide.masked_fill(~keep(lengths, scores.size(1))[:, :, None], 0.0)
        tops = (wide.amax(-1), move.amax(), start.amax(), end.amax())
        weights, moves = (wide - tops[0][:, :, None]).exp(), (move - tops[1]).exp()
        ends = torch.stack([start - tops[2], end - tops[3]]).exp()
        ahead, back = _both_ways(weights, ends, moves, lengths)
        steps = scores.size(1) if lengths is None else lengths
        levels = real(tops[0] + ahead.sums.log(), lengths).sum(1) + tops[1] * (steps - 1) + tops[2] + tops[3]
        ctx.lengths, ctx.dtypes = lengths, [part.dtype for part in (scores, *chain)]
        ctx.save_for_backward(ahead.came, back.came, back.reached, moves)
        return (levels + (last(ahead.came, lengths) * ends[1]).sum(-1).log()).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """A tag's marginal for each score; how often each move is expected for each move."""
        before, after, onward, moves = ctx.saved_tensors
        together = before * onward
        total = together.sum(-1, keepdim=True)
        slope = slopes[0].double()[:, None, None].expand_as(total)
        if ctx.lengths is not None:
            slope = slope * keep(ctx.lengths, total.size(1))[:, :, None]
        at, left = together * (slope / total), before[:, :-1]
        # A move from the last real place leads nowhere.
        share = left * (slope[:, 1:] / total[:, :-1])
        moved = moves * (share.flatten(0, 1).mT @ after[:, 1:].flatten(0, 1))
        parts = (at, at[:, 0].sum(0), moved, last(at, ctx.lengths).sum(0))
        found = [part.to(dtype) for part, dtype in zip(parts, ctx.dtypes, strict=True)]
        return found[0], None, *found[1:]


class _Pass(NamedTuple):
    """One direction of the scaled forward algorithm."""

    reached: Tensor  # [B, S, K]: weights before the place's own score
    came: Tensor  # [B, S, K]: with it, summing to 1
    sums: Tensor  # [B, S]: what they summed to


def _both_ways(weights: Tensor, ends: Tensor, moves: Tensor, lengths: Tensor | None) -> tuple[_Pass, _Pass]:
    """From the beginning, and from the end: the same steps over rows turned round, with moves turned round. So neither
    meets a padded place before a real one, and one product serves both."""
    both, turned = torch.stack([weights, flip(weights, lengths)], 2), torch.stack([moves, moves.mT])
    reached = [ends[:, None].expand(-1, weights.size(0), -1)]  # [2, B, K]
    came, sums = [], []
    for t in range(weights.size(1)):
        if t:
            reached.append(came[-1] @ turned)
        found = reached[-1] * both[:, t].transpose(0, 1)
        sums.append(found.sum(-1, keepdim=True))
        came.append(found / sums[-1])
    before, after, total = (torch.stack(part, 2) for part in (reached, came, sums))  # [2, B, S, K or 1]
    back = _Pass(flip(before[1], lengths), flip(after[1], lengths), total[1, :, :, 0])
    return _Pass(before[0], after[0], total[0, :, :, 0]), back


def viterbi(scores: Tensor, lengths: Tensor | None, chain: Chain) -> Tensor:
    """The row of tags with the highest score, [B, S] (Viterbi 1967; Forney 1973); zeros at padded places."""
    here, pointers = chain.start + scores[:, 0], []
    best = [here]
    for t in range(1, scores.size(1)):
        here, before = (here[:, :, None] + chain.move).max(1)
        here = here + scores[:, t]
        best.append(here)
        pointers.append(before)
    place = torch.full_like(scores[:, 0, 0], scores.size(1) - 1, dtype=torch.long) if lengths is None else lengths - 1
    final = (last(torch.stack(best, 1), lengths) + chain.end).argmax(-1)
    tag, found = final, [final]
    for t in range(scores.size(1) - 2, -1, -1):
        # Rows that end here or earlier have not begun to be read back.
        tag = torch.where(place > t, pointers[t].gather(1, tag[:, None])[:, 0], final)
        found.append(tag)
    tags = torch.stack(found[::-1], 1)
    return tags if lengths is None else tags.masked_fill(~keep(lengths, scores.size(1)), 0)
