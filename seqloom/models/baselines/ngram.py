"""Count-based n-gram language models, the baseline of neural ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.collate import Padded
from seqloom.errors import SeqloomError
from seqloom.parts.layers.output_layers import TokenLosses
from seqloom.parts.state import Decoding, State

_FALLBACK = np.array([0.0, 0.5, 1.0, 1.5])  # for too little data to estimate discounts


class Level(NamedTuple):
    """All n-grams of one length, numbered. `keys` are sorted: (number of the n-gram without its last token) ·
    vocabulary size + last token."""

    keys: np.ndarray
    counts: np.ndarray
    shorter: np.ndarray  # the number, one level down, of the n-gram without its first token


class Ngram(nn.Module):
    """Interpolated Kneser-Ney: p(w|h) = max(a(hw) − D, 0)/a(h·) + γ(h) p(w|h'), h' without its first token; a counts
    occurrences at the highest order and distinct tokens before it below (Kneser & Ney 1995). `modified`: separate
    discounts for counts of one, two and more (Chen & Goodman 1999, section 3). The lowest order is the uniform
    distribution, so that nothing is impossible.

    `order`: the length of the n-grams; the context is one token less. There is no gradient training: see `fit`.
    """

    carries = True

    def __init__(self, source_size: int, labels: int, order: int = 5, modified: bool = True) -> None:
        super().__init__()
        if order < 1:
            raise SeqloomError(f"order of Ngram is at least 1, here {order}")
        self.size, self.ids, self.order, self.modified = source_size, source_size + labels, order, modified
        self.single = _fixed(torch.full((source_size,), 1 / source_size))  # p(w) without a context
        # For each length from 2 on: the n-grams, their own probability, ...
        self.keys = nn.ParameterList(_fixed(torch.zeros(0, dtype=torch.int64)) for _ in range(order - 1))
        self.values = nn.ParameterList(_fixed(torch.zeros(0)) for _ in range(order - 1))
        # ... and γ of each context, one token shorter: the share left to the lower order.
        self.rest = nn.ParameterList(_fixed(torch.zeros(0)) for _ in range(order - 1))

    def resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Allocate parameters of the shapes that `fit` gave in another process."""
        for name, parameter in self.named_parameters():
            if name in shapes:
                parameter.data = parameter.new_zeros(shapes[name])

    def fit(self, supply: Any) -> None:
        """Count. `supply`: a Stream, with `ids`, and `offsets` where lines are apart."""
        ids = np.asarray(supply.ids, np.int64)
        offsets = np.array([0, len(ids)]) if supply.offsets is None else np.asarray(supply.offsets)
        place = np.arange(len(ids)) - np.repeat(offsets[:-1], np.diff(offsets))
        levels = list(self._levels(ids, place))
        for number, level in enumerate(levels):
            counts = level.counts
            if number + 1 < len(levels):
                before = np.bincount(levels[number + 1].shorter, minlength=len(counts))
                counts = np.where(before, before, counts)  # nothing precedes the first token of a row
            parents, contexts = level.keys // self.ids, self.ids if number == 0 else len(levels[number - 1].keys)
            values, rest = self._shares(counts, parents, contexts)
            for table, found in ((self.keys, level.keys), (self.values, values), (self.rest, rest)):
                table[number].data = torch.from_numpy(found).to(table[number])
        follows = levels[0].shorter if levels else ids[place > 0]
        counts = np.bincount(follows, minlength=self.ids)[: self.size]
        values, rest = self._shares(counts, np.zeros(self.size, np.int64), 1)
        self.single.data = torch.from_numpy(values + rest[0] / self.size).to(self.single)

    def _levels(self, ids: np.ndarray, place: np.ndarray) -> Iterator[Level]:
        """From two tokens up. `node[i]`: the number of the n-gram that ends at i."""
        node = ids
        for length in range(2, self.order + 1):
            ends = np.flatnonzero(place >= length - 1)
            keys, number, counts = np.unique(
                node[ends - 1] * self.ids + ids[ends], return_inverse=True, return_counts=True
            )
            shorter = np.zeros(len(keys), np.int64)
            shorter[number] = node[ends]
            yield Level(keys, counts, shorter)
            node = np.full(len(ids), -1, np.int64)
            node[ends] = number

    def _shares(self, counts: np.ndarray, parents: np.ndarray, contexts: int) -> tuple[np.ndarray, np.ndarray]:
        """The n-grams' own probabilities, and γ of their contexts: together 1 for each context."""
        taken = np.minimum(_discounts(counts, self.modified)[np.minimum(counts, 3)], counts)
        totals = np.bincount(parents, weights=counts, minlength=contexts)
        left = np.bincount(parents, weights=taken, minlength=contexts)
        with np.errstate(invalid="ignore", divide="ignore"):
            rest = np.where(totals > 0, left / totals, 1.0)
            return np.where(counts > 0, (counts - taken) / totals[parents], 0.0), rest

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        tokens = source.tokens.repeat_interleave(width, 0)
        return Decoding(None, self._contexts(tokens, None)[-1] if tokens.size(1) else None)

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> log p [R, T, V]"""
        contexts, end = self._contexts(tokens, state.rows)
        p = self.single.expand(tokens.numel(), -1)
        for level, context in enumerate(contexts):
            context, keys = context.flatten(), self.keys[level]
            low, high = (torch.searchsorted(keys, (context + more) * self.ids) for more in (0, 1))
            many = torch.where(context >= 0, high - low, 0)
            rows = torch.repeat_interleave(torch.arange(len(many), device=p.device), many)
            at = torch.arange(len(rows), device=p.device) - (many.cumsum(0) - many)[rows] + low[rows]
            p = self._gamma(level, context)[:, None] * p
            p = p.index_put((rows, keys[at] % self.ids), self.values[level][at], accumulate=True)
        return p.log().view(*tokens.shape, -1), Decoding(None, end)

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor,
        index: Tensor | None = None,
        state: State = None,
        smoothing: float = 0.0,
        summed: bool = False,
    ) -> TokenLosses:
        """As `LanguageModel.forward`; only the labels are looked up."""
        contexts, end = self._contexts(tokens, state)
        p = self.single[labels]
        for level, context in enumerate(contexts):
            p = self._gamma(level, context) * p + _at(self.values[level], self._find(level, context, labels), 0.0)
        nats = -p.log().flatten()
        nats = nats if index is None else nats.index_select(0, index)
        return TokenLosses(nats.sum() if summed else nats, end)

    def _contexts(self, tokens: Tensor, before: State) -> tuple[list[Tensor], State]:
        """The numbers of the n-grams of 1, 2, … tokens that end at each position, [R, T] each, −1: never seen; and
        those of the last position, [R, order − 1], the state for the next steps."""
        if self.order == 1:
            return [], None
        if before is None:
            before = tokens.new_full((tokens.size(0), self.order - 1), -1)
        found = [tokens]
        for level in range(self.order - 2):
            shorter = torch.cat([before[:, level : level + 1], found[-1][:, :-1]], 1)
            found.append(self._find(level, shorter, tokens))
        return found, torch.stack([context[:, -1] for context in found], 1)

    def _gamma(self, level: int, context: Tensor) -> Tensor:
        """γ of each context; 1 if it was never seen."""
        return _at(self.rest[level], context, 1.0)

    def _find(self, level: int, context: Tensor, token: Tensor) -> Tensor:
        """The number of the n-gram, −1 if it was never seen."""
        keys, key = self.keys[level], context * self.ids + token
        if not len(keys):
            return torch.full_like(key, -1)
        at = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
        return torch.where((keys[at] == key) & (context >= 0), at, -1)


def _at(table: Tensor, index: Tensor, missing: float) -> Tensor:
    """table[index], and `missing` where the index is −1."""
    if not len(table):
        return table.new_full(index.shape, missing)
    return torch.where(index >= 0, table[index.clamp(min=0)], missing)


def _discounts(counts: np.ndarray, modified: bool) -> np.ndarray:
    """[4]: the discount of n-grams with counts 0, 1, 2, 3 or more (Chen & Goodman 1999, equation 26;
    with one discount for all, Kneser & Ney 1995, equation 6)."""
    once, twice, thrice, four = (int((counts == n).sum()) for n in (1, 2, 3, 4))
    if not once or not twice:
        return _FALLBACK if modified else np.array([0.0, 0.75, 0.75, 0.75])
    y = once / (once + 2 * twice)
    if not modified:
        return np.array([0.0, y, y, y])
    if not thrice or not four:
        return _FALLBACK
    found = np.array([0.0, 1 - 2 * y * twice / once, 2 - 3 * y * thrice / twice, 3 - 4 * y * four / thrice])
    return np.where(found > 0, np.minimum(found, [0, 1, 2, 3]), _FALLBACK)


def _fixed(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
