"""Masked-token prediction: which tokens are masked, how, and the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.batches.collate import Padded, send, split_points
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.models.pretraining.masked_language_model import MASK, MaskedLanguageModel
from seqloom.parts.visibility import keep
from seqloom.training.objectives.objective import Loss, Objective

MASKED, REPLACED = 0.8, 0.1  # of the chosen tokens; the others stay as they are


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """Whole texts, and how many tokens to predict in each; which ones is drawn when the batch is used."""

    source: Padded  # x1 … xn <eos>
    counts: tuple[int, ...]  # tokens to predict in each row
    index: Tensor  # [N] flat places of the [B, most] matrix of chosen places that are within a row's count
    rows: tuple[int, ...]
    draws: Tensor | None = None  # [B, S] random numbers: the lowest of a row are chosen; None: drawn anew every time

    @classmethod
    def of(
        cls, source: Padded, counts: np.ndarray, rows: tuple[int, ...] = (), draws: Tensor | None = None
    ) -> MaskedBatch:
        """`index` is computed on the host: on a GPU it would wait for the device."""
        taken = np.arange(int(counts.max(initial=0))) < counts[:, None]
        index = torch.from_numpy(np.flatnonzero(taken))
        return cls(source, tuple(counts.tolist()), index, rows, draws)

    def to(self, device: torch.device | str) -> MaskedBatch:
        draws = None if self.draws is None else send(self.draws, device)
        return replace(self, source=self.source.to(device), index=send(self.index, device), draws=draws)

    def part(self, first: int, last: int) -> MaskedBatch:
        """Rows `first` to `last`, not included."""
        source, counts = self.source.part(first, last), np.array(self.counts[first:last], np.int64)
        draws = None if self.draws is None else self.draws[first:last, : source.tokens.size(1)]
        return MaskedBatch.of(source, counts, self.rows[first:last], draws)

    def micro_batches(self, n: int) -> list[MaskedBatch]:
        return [self.part(a, b) for a, b in split_points(len(self.counts), n)] or [self]

    def zero_weight_row(self) -> MaskedBatch:
        first = self.part(0, 1)
        return replace(first, counts=(0,), index=first.index[:0], rows=())

    def positions(self) -> Tensor:
        """[N]: flat positions of the chosen tokens in the [B, S] matrix, without padding and <eos>."""
        tokens, most = self.source.tokens, max(self.counts)
        width = tokens.size(1)
        draws = torch.rand(tokens.shape, device=tokens.device) if self.draws is None else self.draws
        real = keep(self.source.lengths - 1, width)
        lowest = draws.masked_fill(~real, 2.0).topk(most, largest=False).indices
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        return (lowest + rows * width).flatten().index_select(0, self.index)

    def with_tokens(self, places: Tensor, tokens: Tensor) -> Padded:
        """The texts with `tokens` at `places`."""
        whole = self.source.tokens
        return replace(self.source, tokens=whole.flatten().index_copy(0, places, tokens).view(whole.shape))


class MaskedPrediction(Objective):
    """−Σ log p(x_i | the text without it) over the chosen tokens (Devlin et al. 2019, section 3.1).

    80 % of them are masked, 10 % replaced by random tokens, 10 % left as they are. All random numbers come from torch's
    own generator, whose state is saved: a resumed run draws the same.

    Where the batch brings its draws, as held-out texts do, every chosen token is masked.
    """

    tasks = ("mask",)
    model: MaskedLanguageModel

    def forward(self, batch: MaskedBatch) -> Loss:
        places, labels, source = _mask(self.model, batch)
        return Loss(self.model(source, places, labels), places.size(0))


def predict_masked(model: nn.Module, batch: MaskedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The chosen places [N], their tokens [N], and the model's predictions, as logits [N, V]."""
    places, labels, source = _mask(model, batch)
    return places, labels, model(source, places)


def _mask(model: nn.Module, batch: MaskedBatch) -> tuple[Tensor, Tensor, Padded]:
    """The chosen places [N], their tokens [N], and the texts with these masked."""
    places = batch.positions()
    labels = batch.source.tokens.flatten().index_select(0, places)
    if batch.draws is None:
        instead = corrupt(labels, model.source.num_embeddings)  # pyright: ignore
    else:
        instead = torch.full_like(labels, MASK)
    return places, labels, batch.with_tokens(places, instead)


def corrupt(labels: Tensor, size: int) -> Tensor:
    """What the chosen tokens are replaced with: 80 % <mask>, 10 % random tokens, 10 % themselves."""
    draws = torch.rand(labels.shape, device=labels.device)
    others = torch.randint(len(SPECIALS), max(size, len(SPECIALS) + 1), labels.shape, device=labels.device)
    others.clamp_(max=size - 1)  # without other tokens, special ones are drawn
    shown = torch.where(draws < MASKED + REPLACED, others, labels)
    return shown.masked_fill(draws < MASKED, MASK)


class MaskedTexts:
    """Texts with a share of their tokens to be predicted, at least one in each; with a `seed` always the same ones."""

    def __init__(self, texts: ChunkedTexts, share: float, seed: int | None = None) -> None:
        self.texts, self.fingerprint, self.folder = texts, texts.fingerprint, texts.folder
        self.counts = np.maximum(1, np.rint(share * (texts.lengths - 1))).astype(np.int64)
        self.draws = None if seed is None else np.random.default_rng(seed).random(len(texts.ids), np.float32)

    def __len__(self) -> int:
        return len(self.texts)

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        lengths = self.texts.lengths
        return plan(lengths, lengths, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)

    def batch(self, rows: np.ndarray) -> MaskedBatch:
        rows = np.asarray(rows, np.int64)
        source = self.texts.padded(rows)
        draws = None
        if self.draws is not None:
            flat, lengths = self.texts.gather(rows)
            filled = np.full(source.tokens.shape, 2.0, np.float32)
            filled[np.arange(filled.shape[1]) < lengths[:, None]] = self.draws[flat]
            draws = torch.from_numpy(filled)
        return MaskedBatch.of(source, self.counts[rows], tuple(rows.tolist()), draws)

    def count(self, rows: np.ndarray) -> int:
        return int(self.counts[rows].sum())

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: rows × the widest."""
        return np.array([len(rows) * int(self.texts.lengths[rows].max(initial=0)) for rows in plan], np.float64)
