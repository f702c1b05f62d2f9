"""Attention among those that are alike: places are sorted by a hash of their queries, and see who stands beside."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.head_projections import Heads, at_least, by_head, padded
from seqloom.parts.positions.positions import Turns
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

ITSELF = -1e3  # the score of a place for itself: it sees itself only where it sees nobody else


class Sorted(NamedTuple):
    order: Tensor  # [B, heads, rounds, T]: who stands at each place of the sorted row
    where: Tensor  # [B, heads, rounds, T]: where each stands in it


class Reformer(Heads):
    """LSH attention: one vector q is query and key, k = q / |q|; its hash in a round is argmax [q R; −q R] with random
    R. Sorted by hash and cut into chunks, each place sees its own chunk and the one before, by softmax(q·k) v; rounds
    are weighed by their share of Σ e^(q·k) (Kitaev et al. 2020, section 2, https://arxiv.org/abs/2001.04451).

    A row that fits one `chunk` is exact. Where chunks end depends on what comes after, so it cannot write. The R are
    drawn from `seed` and stay. Reports its weights, [B, heads, T, S], those of all rounds together.
    """

    causal = False
    kernel = True
    rotations: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        score: Annotated[Choice, SCORES],
        chunk: int = 64,
        buckets: int = 64,
        rounds: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(dim, heads, score)
        if buckets < 2 or buckets % 2:
            raise SeqloomError(f"buckets is even, a direction and its opposite, and at least 2, here {buckets}")
        self.chunk, self.buckets, self.rounds = at_least("chunk", chunk), buckets, at_least("rounds", rounds)
        self.project = nn.Linear(dim, 2 * dim)  # q, which is k, and v
        for weight in self.project.weight.chunk(2):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.project.bias)
        draw = torch.randn(heads, dim // heads, rounds, buckets // 2, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("rotations", draw, persistent=False)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: Turns | None = None
    ) -> tuple[Tensor, State]:
        q, v = (self._split(part) for part in self.project(x).chunk(2, -1))
        q, _ = self.turn(position)(q, q, 0)
        y, state = self.mix(q, q, v, visible, state)
        return self.out(y.transpose(1, 2).flatten(2)), state

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        n = q.size(2)
        if n <= self.chunk and self.probe is None:
            return self._plain(q, v, visible.lengths, None), state
        spare = -n % self.chunk
        lengths = (
            visible.lengths
            if visible.lengths is not None or not spare
            else q.new_full((q.size(0),), n, dtype=torch.long)
        )
        q, v = (padded(x, 0, spare) for x in (q, v))
        turns = self.rotations[None].to(q.dtype)
        if self.probe is not None:
            return self._plain(q, v, lengths, self._sort(q, turns, lengths))[:, :, :n], state
        y = by_head(lambda q, v, turns: self._chunked(q, v, lengths, self._sort(q, turns, lengths)), q, v, turns)
        return y[:, :, :n], state

    def _sort(self, q: Tensor, turns: Tensor, lengths: Tensor | None) -> Sorted:
        turned = torch.einsum("bhtd,hdrn->bhrtn", q.detach(), turns[0])
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        if lengths is not None:  # what is padded stands behind all others
            empty = torch.arange(q.size(2), device=q.device) >= lengths[:, None]
            bucket = bucket.masked_fill(empty[:, None, None], self.buckets)
        order = bucket.argsort(stable=True)
        at = torch.arange(q.size(2), device=q.device).expand_as(order)
        return Sorted(order, torch.empty_like(order).scatter_(-1, order, at))

    def _chunked(self, q: Tensor, v: Tensor, lengths: Tensor | None, found: Sorted) -> Tensor:
        exact = torch.promote_types(q.dtype, torch.float32)
        q, v = (_gathered(x[:, :, None].expand(-1, -1, self.rounds, -1, -1), found.order) for x in (q, v))
        q, v, at = (x.unflatten(3, (-1, self.chunk)) for x in (q, v, found.order))
        last = None if lengths is None else (lengths - 1) // self.chunk
        k, v, key = (torch.cat([_before(x, last), x], 4) for x in (unit(q), v, at))
        scores = (q @ k.mT).to(exact)
        if lengths is not None:
            behind = key >= lengths[:, None, None, None, None]
            scores = scores.masked_fill(behind.unsqueeze(-2), float("-inf"))
        scores = scores.masked_fill(at.unsqueeze(-1) == key.unsqueeze(-2), ITSELF)
        total = scores.logsumexp(-1, keepdim=True)
        y = (scores - total).exp().to(v.dtype) @ v
        y, total = (_gathered(x.flatten(3, 4), found.where) for x in (y, total))
        return (y * total.softmax(2).to(y.dtype)).sum(2)

    def _plain(self, q: Tensor, v: Tensor, lengths: Tensor | None, found: Sorted | None) -> Tensor:
        """With all pairs. The rounds together are one softmax in which a pair counts as often as it meets."""
        scores = (q @ unit(q).mT).to(torch.promote_types(q.dtype, torch.float32))
        at = torch.arange(q.size(2), device=q.device)
        if lengths is not None:
            scores = scores.masked_fill((at >= lengths[:, None])[:, None, None], float("-inf"))
        scores = scores.masked_fill(at[:, None] == at, ITSELF)
        if found is not None:
            scores = scores + self._meetings(found, lengths).to(scores.dtype).log()
        weights = scores.softmax(-1)
        if self.probe is not None:
            self.probe(weights.detach())
        return weights.to(v.dtype) @ v

    def _meetings(self, found: Sorted, lengths: Tensor | None) -> Tensor:
        """[B, heads, T, T]: how often one sees the other, in its own chunk and the one before, in all rounds."""
        chunk = found.where // self.chunk
        last = chunk.amax() if lengths is None else ((lengths - 1) // self.chunk)[:, None, None, None, None]
        asks, seen, wrapped = chunk[..., :, None], chunk[..., None, :], chunk.roll(1, 2)[..., None, :]
        before = torch.where(asks > 0, seen == asks - 1, wrapped == last)
        return (seen == asks).long().add(before).sum(2)


def unit(x: Tensor) -> Tensor:
    """Of length one."""
    return x * (x.pow(2).sum(-1, keepdim=True) + 1e-6 * x.size(-1)).rsqrt()


def _before(x: Tensor, last: Tensor | None) -> Tensor:
    """[B, heads, rounds, N, chunk, ...] -> the chunk before each; before the first comes the last of the round before,
    the last with anybody in it, `last` [B]."""
    if last is None:
        end = x[:, :, :, -1:]
    else:
        end = x.take_along_dim(last.view(-1, *[1] * (x.dim() - 1)), 3)
    return torch.cat([end.roll(1, 2), x[:, :, :, :-1]], 3)


def _gathered(x: Tensor, order: Tensor) -> Tensor:
    """[B, heads, rounds, T, D] -> the same with the rows of each in `order` [B, heads, rounds, T]."""
    return x.take_along_dim(order[..., None], 3)
