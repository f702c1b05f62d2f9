"""Objectives for one value per example: a label, several labels, or a number.

A batch has `source` (what the model reads), `target`, `weight` (of each target; None: all 1) and `count`. The sum is
weighted, the count is the number of rows. Class weights: see `data/batches/class_weights.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.training.objectives.objective import Loss, Objective
from seqloom.training.objectives.r_drop import divergence


class LabelObjective(Objective):
    """The base of objectives for one value per example: `loss` compares the model's outputs with the targets."""

    tasks = ("classify", "table")

    def forward(self, batch: Any) -> Loss:
        return self.loss(self.model(batch.source), batch)

    def loss(self, logits: Tensor, batch: Any) -> Loss:
        """Of outputs [B, outputs]."""
        raise NotImplementedError


class CrossEntropy(LabelObjective):
    """−Σ w log p(label), p the softmax of the logits (Bridle 1990): its gradient by the logits is w (p − y). Smoothed,
    a share of the label's mass is spread over all labels (Szegedy et al. 2016, section 7). With `r_drop`, every row
    is predicted twice, and the divergence of the two is added (R-Drop; see TeacherForcing)."""

    targets = ("label",)

    def __init__(self, model: nn.Module, label_smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        super().__init__(model)
        self.smoothing, self.r_drop = label_smoothing, r_drop

    def forward(self, batch: Any) -> Loss:
        logits = self.model(batch.source)
        if not (self.training and self.r_drop):
            return self.loss(logits, batch)
        other = self.model(batch.source)  # with another dropout mask
        r_drop = _weighted_sum(divergence(logits, other).masked_fill(batch.target < 0, 0.0), batch).total
        total = self.loss(logits, batch).total + self.loss(other, batch).total + self.r_drop * r_drop
        return Loss(total / 2, batch.count)

    def loss(self, logits: Tensor, batch: Any) -> Loss:
        """Of logits [B, labels] and targets [B]; −1, a label that the training data lacks, is left out."""
        # A validation loss is a likelihood: smoothing belongs to training alone.
        smoothing = self.smoothing if self.training else 0.0
        each = F.cross_entropy(
            logits.float(), batch.target, reduction="none", ignore_index=-1, label_smoothing=smoothing
        )
        return _weighted_sum(each, batch)


class BinaryCrossEntropy(LabelObjective):
    """−Σ w log p over all labels of a row, each by a sigmoid of its own (Nam et al. 2014)."""

    targets = ("labels",)

    def __init__(self, model: nn.Module, label_smoothing: float = 0.0) -> None:
        super().__init__(model)
        self.smoothing = label_smoothing

    def loss(self, logits: Tensor, batch: Any) -> Loss:
        """Of logits and targets, both [B, labels]."""
        smoothing = self.smoothing if self.training else 0.0
        target = batch.target * (1 - smoothing) + smoothing / 2
        return _weighted_sum(F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none"), batch)


class SquaredError(LabelObjective):
    """Σ (ŷ − y)² (Bishop 2006, section 1.1), of numbers that are standardized by the training data."""

    targets = ("number",)
    in_nats = False

    def loss(self, logits: Tensor, batch: Any) -> Loss:
        """Of outputs [B, 1] and targets [B]."""
        return _weighted_sum((logits.float()[:, 0] - batch.target).square(), batch)


def _weighted_sum(each: Tensor, batch: Any) -> Loss:
    weighted = each if batch.weight is None else each * batch.weight.to(each)
    return Loss(torch.sum(weighted), batch.count)
