"""Teacher forcing: the likelihood of a target, each step given the true tokens before it."""

from __future__ import annotations

from torch import Tensor

from seqloom.data.batches.collate import Batch
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.layers.cross_entropy import cross_entropy_of_logits
from seqloom.training.objectives.objective import Loss, Objective
from seqloom.training.objectives.r_drop import divergence


class TeacherForcing(Objective):
    """−Σ log p(y_t | y_<t, x) over real target tokens, each step given the true tokens before it
    (Williams & Zipser 1989); smoothed, a share of the target's mass is spread over all tokens.

    With `r_drop` α, every row is predicted twice, with two dropout masks, and their divergence is added: half of
    Σ −log p − log q + α ½ (KL(p‖q) + KL(q‖p)) (R-Drop: Liang et al. 2021, equation 4)."""

    tasks = ("translate",)
    model: Seq2Seq

    def __init__(self, model: Seq2Seq, label_smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        super().__init__(model)
        self.smoothing, self.r_drop = label_smoothing, r_drop

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
