"""Teacher forcing, and `Loss`: a sum and a count, so that ranks and micro-batches add up."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from seqloom.data.batches.collate import Batch
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.layers.cross_entropy import cross_entropy_of_logits
from seqloom.parts.state import State
from seqloom.training.objectives.r_drop import divergence


class Loss(NamedTuple):
    total: Tensor  # summed over real target tokens
    count: int  # of these tokens: known on the host, since lengths are there too
    carried: State = None  # the state for the next batch, detached; only where batches continue one another


class TeacherForcing(nn.Module):
    """−Σ log p(y_t | y_<t, x) over real target tokens, each step given the true tokens before it
    (Williams & Zipser 1989); smoothed, a share of the target's mass is spread over all tokens.

    With `agreement` α, every row is predicted twice, with two dropout masks, and their divergence is added: half of
    Σ −log p − log q + α ½ (KL(p‖q) + KL(q‖p)) (R-Drop: Liang et al. 2021, equation 4)."""

    def __init__(self, model: Seq2Seq, smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.r_drop = r_drop

    def forward(self, batch: Batch) -> Loss:
        if self.training and self.r_drop:
            return self._twice(batch)
        # A validation loss is a likelihood: smoothing belongs to training alone.
        smoothing = self.smoothing if self.training else 0.0
        total = self.model(batch.source, batch.target.tokens[:, :-1], batch.index, _labels(batch), smoothing)
        return Loss(total, batch.count)

    def _twice(self, batch: Batch) -> Loss:
        both = batch.twice()
        labels = _labels(both)
        logits = self.model(both.source, both.target.tokens[:, :-1], both.index)
        nats = cross_entropy_of_logits(logits, labels, self.smoothing, PAD)
        real = labels.chunk(2)[0] != PAD
        total = (nats + self.r_drop * divergence(*logits.chunk(2)).masked_fill(~real, 0.0).sum()) / 2
        return Loss(total, batch.count)


def _labels(batch: Batch) -> Tensor:
    return batch.target.tokens[:, 1:].flatten().index_select(0, batch.index)
