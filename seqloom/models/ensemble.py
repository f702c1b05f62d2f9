"""Ensembles: several models of one task that predict the mean of their probabilities (Hansen & Salamon 1990).

An ensemble is used as a single model is. Its members may differ in everything but their inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches.collate import Padded
from seqloom.data.batches.words import Words
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.models.tagger import TagPrediction, predict_tags
from seqloom.parts.layers.crf import Allowed, Softmax
from seqloom.parts.layers.cross_entropy import cross_entropy_of_logits
from seqloom.parts.state import Decoding


class Ensemble(nn.Module):
    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: Any = nn.ModuleList(members)


class StepperEnsemble(Ensemble):
    """A Stepper of Steppers: p(next token) is the mean of the members' (Sutskever et al. 2014, section 3.6). Each
    member has its own state; rows are picked in all of them."""

    def forward(
        self,
        source: Padded,
        tokens: Tensor,
        index: Tensor | None = None,
        labels: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Teacher forcing, as of one model: log-probabilities [B, T, V], with `index` [N, V]; of `labels` the loss."""
        logs = log_mean([member(source, tokens, index) for member in self.members])
        return logs if labels is None else cross_entropy_of_logits(logs, labels, smoothing, PAD)

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        return _joint_state([member.start(source, width=width, room=room) for member in self.members])

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> log-probabilities [R, T, V]"""
        states = map(Decoding, state.context, state.rows)
        logits, after = zip(*map(lambda member, one: member.step(tokens, one), self.members, states), strict=True)
        return log_mean(logits), _joint_state(after)


class ClassifierEnsemble(Ensemble):
    """`kind` of target: for one label the mean of the softmaxes, for several the mean of the sigmoids, each returned as
    logits; for numbers the mean."""

    def __init__(self, members: Sequence[nn.Module], kind: str) -> None:
        super().__init__(members)
        self.kind = kind

    def forward(self, source: Padded) -> Tensor:
        """[B, outputs]"""
        outputs = torch.stack([_float32(member(source)) for member in self.members])
        if self.kind == "number":
            return outputs.mean(0)
        if self.kind == "labels":  # log p - log(1 - p), where the number of members cancels
            return F.logsigmoid(outputs).logsumexp(0) - F.logsigmoid(-outputs).logsumexp(0)
        return log_mean(list(outputs))


class TaggerEnsemble(Ensemble):
    """p(tag at a place) is the mean of the members' marginals, of a softmax or a CRF. The most likely tag is taken at
    each position, or the most likely sequence that the tag scheme allows. A CRF's transitions count only within its
    marginals, so an ensemble of two copies of a CRF may differ from one of them."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__(members)
        self.output = Softmax(0)  # it has no weights

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]: log-probabilities."""
        both = [(member, _float32(member.scores(source))) for member in self.members]
        return log_mean([member.output.marginals(scores, source.lengths) for member, scores in both])

    def best(self, source: Words, allowed: Allowed | None = None, given: Tensor | None = None) -> TagPrediction:
        return predict_tags(self, source, allowed, given)


def log_mean(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of the softmaxes over the last dimension, in log space."""
    return torch.stack([_float32(one).log_softmax(-1) for one in logits]).logsumexp(0) - math.log(len(logits))


def _float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype.itemsize < 4 else values


def _joint_state(states: Sequence[Decoding]) -> Decoding:
    """A tuple of states is a state: `pick` recurses into it."""
    return Decoding(tuple(one.context for one in states), tuple(one.rows for one in states))
