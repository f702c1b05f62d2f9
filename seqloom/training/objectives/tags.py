"""The objective of taggers, and their scores on held-out sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.tags import Tags, TagSource
from seqloom.data.batches.words import TagBatch
from seqloom.data.encoding.tag_schemes import END_LETTERS, is_allowed
from seqloom.metrics.span_f1 import TAG_METRICS, TagSequences, score_sums
from seqloom.parts.layers.crf import Allowed, mask_padding
from seqloom.training.distributed.processes import ALONE, Ranks
from seqloom.training.objectives.objective import Loss, Objective, unwrap
from seqloom.training.objectives.r_drop import divergence
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches


class TagLikelihood(Objective):
    """−Σ log p(tags | words) over sentences; the count is of words, so that a loss is nats a word. With `r_drop`,
    every sentence is predicted twice, and the divergence of the two p(tag | words) at each word is added (Liang et al.
    2021; see TeacherForcing)."""

    tasks = ("tag",)

    def __init__(self, model: nn.Module, label_smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        super().__init__(model)
        self.smoothing, self.r_drop = label_smoothing, r_drop

    def forward(self, batch: TagBatch) -> Loss:
        if self.training and self.r_drop:
            total = self._twice(batch)
        else:  # a validation loss is a likelihood: smoothing belongs to training alone
            total = -self.model(batch.source, batch.tags, self.smoothing if self.training else 0.0).sum()
        return Loss(total if batch.rows else total * 0.0, batch.count)

    def _twice(self, batch: TagBatch) -> Tensor:
        first, second = (self.model.distribution(batch.source, batch.tags, self.smoothing) for _ in range(2))
        apart = mask_padding(divergence(first.marginals, second.marginals), batch.source.lengths)
        return (self.r_drop * apart.sum() - first.likelihood.sum() - second.likelihood.sum()) / 2


def allowed_moves(tags: Tags) -> Allowed | None:
    """The transitions that the scheme allows; None if all."""
    if tags.scheme not in ("bio", *END_LETTERS):
        return None
    names, scheme = tags.names, tags.scheme
    start = torch.tensor([is_allowed(None, name, scheme) for name in names])
    move = torch.tensor([[is_allowed(before, after, scheme) for after in names] for before in names])
    end = torch.tensor([is_allowed(name, None, scheme) for name in names])
    return Allowed(start, move, end)


@torch.inference_mode()
def tag_scores(
    objective: nn.Module,
    source: TagSource,
    tags: Tags,
    settings: Training,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """On all held-out sentences: `loss` in nats a word, `accuracy`, `f1` where the tags mark spans, and the score that
    the best model is chosen by."""
    training = objective.training
    objective.eval()
    model: Any = unwrap(objective).model
    more = [settings.select] if settings.select in TAG_METRICS.keys() - {"accuracy", "f1"} else []
    scored = [TAG_METRICS[name](TagSequences([], [], tags.scheme)) for name in more]  # each is a function of sums
    allowed, sums = allowed_moves(tags), np.zeros(7 + sum(one.table.shape[1] for one in scored))
    for batch in all_batches(source, settings, ranks):
        there = batch.to(device)
        best = model.best(there.source, allowed, there.tags)
        if batch.rows:  # else the row has weight zero
            tagged = TagSequences(*_tag_names(best.tags, batch, tags), tags.scheme)
            right = [score_sums(tagged), *(TAG_METRICS[name](tagged).table.sum(0) for name in more)]
            sums += [-float(best.likelihood.double().sum()), batch.count, *np.concatenate(right)]
    objective.train(training)
    if ranks.distributed:
        sums = ranks.all_reduce(torch.from_numpy(sums).to(device)).cpu().numpy()
    nats, count, right, words, *spans = sums.tolist()
    scores = {"loss": nats / max(count, 1), "accuracy": 100 * right / max(words, 1)}
    scores |= {name: one.finish(sums[7:]) for name, one in zip(more, scored, strict=True)}
    return scores if tags.scheme is None else scores | {"f1": 100 * 2 * spans[0] / max(spans[1] + spans[2], 1)}


def _tag_names(predicted: Tensor, batch: TagBatch, tags: Tags) -> tuple[list[list[str]], list[list[str]]]:
    """The predicted and the reference tags of a batch, by name."""
    lengths = batch.source.tokens.host
    sides = (predicted.tolist(), batch.tags.tolist())
    names = tags.names
    written, wanted = (
        [[names[tag] for tag in row[:length]] for row, length in zip(side, lengths, strict=True)] for side in sides
    )
    return written, wanted
