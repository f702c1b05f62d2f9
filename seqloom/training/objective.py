"""What is trained: a batch in, a loss out. A loss is a sum and a count, so that ranks and micro-batches add up."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from seqloom.data.batch import Batch
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.state import State


class Loss(NamedTuple):
    total: Tensor  # summed over real target tokens
    count: int  # how many: known on the host, since lengths travel there too
    carried: State = None  # where the next batch goes on, detached; only where batches continue one another


class TeacherForcing(nn.Module):
    """−Σ log p(y_t | y_<t, x) over real target tokens, each step given the true tokens before it
    (Williams & Zipser 1989); smoothed, a share of the target's mass is spread over all tokens."""

    def __init__(self, model: Seq2Seq, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> Loss:
        labels = batch.target.tokens[:, 1:].flatten().index_select(0, batch.index)
        # A validation loss is a likelihood: smoothing belongs to training alone.
        smoothing = self.smoothing if self.training else 0.0
        total = self.model(batch.source, batch.target.tokens[:, :-1], batch.index, labels, smoothing)
        return Loss(total, batch.count)
