"""Several models of one task that answer as one: by the mean of their probabilities (Hansen & Salamon 1990).

Each stands where a single model stands: the same search, the same runner. Its members may differ in everything but
what goes in and what comes out.
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
from seqloom.models.tagger import Found, found
from seqloom.parts.layers.crf import Allowed, Softmax
from seqloom.parts.layers.cross_entropy import of_logits
from seqloom.parts.state import Decoding


class Ensemble(nn.Module):
    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: Any = nn.ModuleList(members)


class Writers(Ensemble):
    """A Stepper of Steppers: p(next token) is the mean of the members' (Sutskever et al. 2014, section 3.6). What a
    member has read and written stays its own; rows are picked in all of them alike."""

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
        return logs if labels is None else of_logits(logs, labels, smoothing, PAD)

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        return _together([member.start(source, width=width, room=room) for member in self.members])

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> log-probabilities [R, T, V]"""
        stand = map(Decoding, state.context, state.rows)
        said, after = zip(*map(lambda member, one: member.step(tokens, one), self.members, stand), strict=True)
        return log_mean(said), _together(after)


class Labellers(Ensemble):
    """`kind` of what is guessed: of one label the mean of the softmaxes, of several the mean of the sigmoids, each as
    the logits that give it; of numbers the mean."""

    def __init__(self, members: Sequence[nn.Module], kind: str) -> None:
        super().__init__(members)
        self.kind = kind

    def forward(self, source: Padded) -> Tensor:
        """[B, outputs]"""
        said = torch.stack([_wide(member(source)) for member in self.members])
        if self.kind == "number":
            return said.mean(0)
        if self.kind == "labels":  # log p - log(1 - p), in which the number of members falls out
            return F.logsigmoid(said).logsumexp(0) - F.logsigmoid(-said).logsumexp(0)
        return log_mean(list(said))


class Taggers(Ensemble):
    """p(tag at a place) is the mean of the members' marginals, a softmax's or a chain's. The likeliest tag is taken at
    each place, or the likeliest row that the scheme of the tags allows: a chain's own moves count only within its
    marginals, so that two copies of a chain may differ from one of them where its best row is not its best tags."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__(members)
        self.output = Softmax(0)  # it has no weights

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]: log-probabilities."""
        both = [(member, _wide(member.scores(source))) for member in self.members]
        return log_mean([member.output.marginals(scores, source.lengths) for member, scores in both])

    def best(self, source: Words, allowed: Allowed | None = None, asked: Tensor | None = None) -> Found:
        return found(self, source, allowed, asked)


def log_mean(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of the softmaxes over the last dimension; none is so small that it is lost."""
    return torch.stack([_wide(one).log_softmax(-1) for one in logits]).logsumexp(0) - math.log(len(logits))


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype.itemsize < 4 else values


def _together(states: Sequence[Decoding]) -> Decoding:
    """Tuples of states are states: `pick` goes into them."""
    return Decoding(tuple(one.context for one in states), tuple(one.rows for one in states))
