"""Skip-gram: pairs of neighboring words, negative samples, and the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.batches.collate import send, split_points
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.models.pretraining.skip_gram import SkipGram
from seqloom.training.objectives.objective import Loss, Objective

KEEP, SPAN, DRAW = 1, 2, 3  # what a random number is for


@dataclass(frozen=True, eq=False)
class WordPairs:
    """Pairs of words that stand near each other, and negative samples."""

    centre: Tensor  # [N]
    others: Tensor  # [N, 1 + negatives]: a true neighbor first, then negative samples
    rows: tuple[int, ...]

    def to(self, device: torch.device | str) -> WordPairs:
        return replace(self, centre=send(self.centre, device), others=send(self.others, device))

    def micro_batches(self, n: int) -> list[WordPairs]:
        parts = split_points(len(self.centre), n)
        return [replace(self, centre=self.centre[a:b], others=self.others[a:b]) for a, b in parts] or [self]

    def zero_weight_row(self) -> WordPairs:
        return WordPairs(self.centre[:0], self.others[:0], ())


class NegativeSampling(Objective):
    """−Σ [log σ(c·w) + Σ_k log σ(−n_k·w)] over pairs of neighbors (Mikolov et al. 2013, equation 4)."""

    tasks = ("vectors",)
    model: SkipGram

    def forward(self, batch: WordPairs) -> Loss:
        logits = self.model(batch.centre, batch.others).float()
        signed = torch.cat([logits[:, :1], -logits[:, 1:]], dim=1)
        return Loss(-F.logsigmoid(signed).sum(), batch.centre.size(0))


class Windows:
    """Pairs of neighboring words within texts.

    Each word's window (1 to `window`), which frequent words are dropped (each is kept with the probability
    √(often / share), at most 1) and which negative samples are drawn (by their share to the power 3/4) follow from the
    seed, the epoch and the word's position alone: no random state is saved. The epoch is part of a row's
    number in a plan: epoch × texts + text. Of a text in which fewer than two words would stay, all do.
    """

    def __init__(
        self, texts: ChunkedTexts, counts: np.ndarray, *, window: int, negatives: int, often: float, seed: int
    ) -> None:
        """`counts` [V]: how often each id comes in the training texts."""
        self.texts, self.fingerprint, self.folder = texts, texts.fingerprint, texts.folder
        self.window, self.negatives, self.seed = window, negatives, seed
        counts = counts.astype(np.float64)
        counts[: len(SPECIALS)] = 0.0  # special tokens have no vectors and are never drawn
        share = counts / max(counts.sum(), 1.0)
        self.keep_probability = np.where(counts > 0, np.sqrt(often / np.maximum(share, 1e-12)), 0.0)
        drawn = np.cumsum(counts**0.75)
        self.negative_cdf = drawn / max(drawn[-1], 1.0)
        known = np.add.reduceat(self.keep_probability[texts.ids] > 0, texts.offsets[:-1], dtype=np.int64)
        self.usable = np.flatnonzero(known > 1)  # alone, a word has no neighbor

    def __len__(self) -> int:
        return len(self.usable)

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        lengths = self.texts.lengths[self.usable]
        made = plan(lengths, lengths, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)
        return Plan(made.order + epoch * len(self), made.ends)

    def batch(self, rows: np.ndarray) -> WordPairs:
        ids, places, centre, other = self._pairs(np.asarray(rows, np.int64))
        keys = (places[centre] * (2 * self.window + 1) + other - centre + self.window)[:, None] * self.negatives
        drawn = np.searchsorted(self.negative_cdf, self._random(keys + np.arange(self.negatives), DRAW), side="right")
        others = np.concatenate([ids[other][:, None], drawn], axis=1)
        return WordPairs(torch.from_numpy(ids[centre]), torch.from_numpy(others), tuple(rows.tolist()))

    def count(self, rows: np.ndarray) -> int:
        return len(self._pairs(np.asarray(rows, np.int64))[2])

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: their tokens."""
        starts = np.concatenate([[0], plan.ends[:-1]])
        return np.add.reduceat(self.texts.lengths[self.usable[plan.order % len(self)]].astype(np.float64), starts)

    def _pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The words that stay, each with its own number in all epochs, and which of them are neighbors."""
        epoch, text = np.divmod(rows, len(self))
        flat, lengths = self.texts.gather(self.usable[text])
        places = flat + np.repeat(epoch, lengths) * len(self.texts.ids)
        ids, owner = self.texts.ids[flat].astype(np.int64), np.repeat(np.arange(len(rows)), lengths)
        stay = self._random(places, KEEP) < self.keep_probability[ids]
        few = np.bincount(owner[stay], minlength=len(rows)) < 2
        stay |= few[owner] & (self.keep_probability[ids] > 0)
        ids, places, owner = ids[stay], places[stay], owner[stay]
        reach = 1 + (self._random(places, SPAN) * self.window).astype(np.int64)
        centres, others = [], []
        for distance in range(1, self.window + 1):
            left = np.flatnonzero(owner[distance:] == owner[:-distance])
            for centre, other in ((left, left + distance), (left + distance, left)):
                near = reach[centre] >= distance
                centres.append(centre[near])
                others.append(other[near])
        return ids, places, np.concatenate(centres), np.concatenate(others)

    def _random(self, numbers: np.ndarray, purpose: int) -> np.ndarray:
        """A number in 0 … 1 for each, always the same: the finisher of SplitMix64 (Steele et al. 2014, figure 16)."""
        start = np.random.SeedSequence([self.seed, purpose]).generate_state(1, np.uint64)[0]
        x = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + start
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
