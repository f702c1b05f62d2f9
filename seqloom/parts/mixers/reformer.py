"""Reformer: attention among similar positions, found by sorting them by a hash of their queries."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.multi_head import merge_heads, split_heads
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import EfficientAttention, at_least, pad_time
from seqloom.parts.positions.position import AttentionPosition
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

SELF_SCORE = -1e3  # of a position for itself: it sees itself only where it sees no other


class Sorting(NamedTuple):
    order: Tensor  # [B, heads, rounds, T]: the position at each rank
    rank: Tensor  # [B, heads, rounds, T]: the rank of each position


class Reformer(EfficientAttention):
    """LSH attention: one vector q is query and key, k = q / |q|; its hash in a round is argmax [q R; −q R] with random
    R. Positions are sorted by hash and cut into chunks; each sees its own chunk and the one before, by softmax(q·k) v;
    rounds are weighted by their share of Σ e^(q·k) (Kitaev et al. 2020, section 2, https://arxiv.org/abs/2001.04451).

    Exact for rows within one `chunk`. Chunks depend on later positions, so it cannot be causal. The R are drawn from
    `seed` and not trained. Reports its weights, [B, heads, T, S], of all rounds together.
    """

    causal = False
    own_formula = True
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
        self.chunk, rounds = at_least("chunk", chunk), at_least("rounds", rounds)
        self.project = nn.Linear(dim, 2 * dim)  # q, which is k, and v
        for weight in self.project.weight.chunk(2):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.project.bias)
        draw = torch.randn(heads, dim // heads, rounds, buckets // 2, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("rotations", draw, persistent=False)

    def forward(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        q, v = (split_heads(part, self.head_dim) for part in self.project(x).chunk(2, -1))
        q, _ = self.rotation(position)(q, q, 0)
        y, state = self.mix(q, q, v, visible, state)
        return self.out(merge_heads(y)), state

    @accelerated
    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        n, lengths = q.size(2), visible.lengths
        missing = -n % self.chunk
        if lengths is None and missing:
            lengths = q.new_full((q.size(0),), n, dtype=torch.long)
        q, v = (pad_time(x, 0, missing) for x in (q, v))
        rotations = self.rotations.to(q.dtype)
        attended = attend_chunks if self.probe is None else self._attend_all_pairs
        return attended(q, v, rotations, lengths, self.chunk)[:, :, :n], state

    def _attend_all_pairs(self, q: Tensor, v: Tensor, rotations: Tensor, lengths: Tensor | None, chunk: int) -> Tensor:
        """`attend_chunks` that reports its weights: the rounds together are one softmax over all pairs, in which a pair
        counts as often as it is visible."""
        counts = _pair_counts(sort_by_hash(q, rotations, lengths), lengths, chunk)
        scores = shared_scores(q, lengths)
        weights = (scores + counts.to(scores.dtype).log()).softmax(-1)
        if self.probe is not None:
            self.probe(weights.detach())
        return weights.to(v.dtype) @ v


def sort_by_hash(q: Tensor, rotations: Tensor, lengths: Tensor | None) -> Sorting:
    """`rotations` R [heads, head_dim, rounds, buckets / 2]; the hash is argmax [q R; −q R]."""
    rotated = torch.einsum("bhtd,hdrn->bhrtn", q.detach(), rotations)
    bucket = torch.cat([rotated, -rotated], -1).argmax(-1)
    if lengths is not None:  # padding comes last
        padding = torch.arange(q.size(2), device=q.device) >= lengths[:, None]
        bucket = bucket.masked_fill(padding[:, None, None], 2 * rotations.size(-1))
    order = bucket.argsort(stable=True)
    positions = torch.arange(q.size(2), device=q.device).expand_as(order)
    return Sorting(order, torch.empty_like(order).scatter_(-1, order, positions))


@accelerated
def attend_chunks(q: Tensor, v: Tensor, rotations: Tensor, lengths: Tensor | None, chunk: int) -> Tensor:
    """LSH attention of q and v [B, heads, T, D], whole chunks, in all rounds."""
    sorting = sort_by_hash(q, rotations, lengths)
    exact = torch.promote_types(q.dtype, torch.float32)
    q, v = (_gather(x[:, :, None].expand(-1, -1, rotations.size(2), -1, -1), sorting.order) for x in (q, v))
    q, v, query = (x.unflatten(3, (-1, chunk)) for x in (q, v, sorting.order))
    last = None if lengths is None else (lengths - 1) // chunk
    k, v, key = (torch.cat([_chunk_before(x, last), x], 4) for x in (unit(q), v, query))
    scores = (q @ k.mT).to(exact)
    if lengths is not None:
        padding = key >= lengths[:, None, None, None, None]
        scores = scores.masked_fill(padding.unsqueeze(-2), float("-inf"))
    scores = scores.masked_fill(query.unsqueeze(-1) == key.unsqueeze(-2), SELF_SCORE)
    total = scores.logsumexp(-1, keepdim=True)
    y = (scores - total).exp().to(v.dtype) @ v
    y, total = (_gather(x.flatten(3, 4), sorting.rank) for x in (y, total))
    return (y * total.softmax(2).to(y.dtype)).sum(2)


def shared_scores(q: Tensor, lengths: Tensor | None) -> Tensor:
    """q·q / |q| of all pairs, [B, heads, T, T]; −inf for padded keys."""
    scores = (q @ unit(q).mT).to(torch.promote_types(q.dtype, torch.float32))
    positions = torch.arange(q.size(2), device=q.device)
    if lengths is not None:
        scores = scores.masked_fill((positions >= lengths[:, None])[:, None, None], float("-inf"))
    return scores.masked_fill(positions[:, None] == positions, SELF_SCORE)


def _pair_counts(sorting: Sorting, lengths: Tensor | None, chunk: int) -> Tensor:
    """[B, heads, T, T]: in how many rounds, in its own chunk or the one before, a query sees a key."""
    own = sorting.rank // chunk
    last = own.amax() if lengths is None else ((lengths - 1) // chunk)[:, None, None, None, None]
    query, key, wrapped = own[..., :, None], own[..., None, :], own.roll(1, 2)[..., None, :]
    before = torch.where(query > 0, key == query - 1, wrapped == last)
    return (key == query).long().add(before).sum(2)


def unit(x: Tensor) -> Tensor:
    """x / |x|"""
    return x * (x.pow(2).sum(-1, keepdim=True) + 1e-6 * x.size(-1)).rsqrt()


def _chunk_before(x: Tensor, last: Tensor | None) -> Tensor:
    """[B, heads, rounds, N, chunk, ...] -> the chunk before each; before the first, the `last` [B] with a real position
    of the previous round."""
    if last is None:
        end = x[:, :, :, -1:]
    else:
        end = x.take_along_dim(last.view(-1, *[1] * (x.dim() - 1)), 3)
    return torch.cat([end.roll(1, 2), x[:, :, :, :-1]], 3)


def _gather(x: Tensor, order: Tensor) -> Tensor:
    """[B, heads, rounds, T, D] -> the same in `order` [B, heads, rounds, T]."""
    return x.take_along_dim(order[..., None], 3)
