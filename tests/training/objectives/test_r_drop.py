"""Two guesses of a row should agree (R-Drop): the formula by hand, what it does to training, and where it cannot be."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.batches.labels import LabelBatch
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.objectives.labels import CrossEntropy
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.objectives.r_drop import divergence
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training

SIZE = 9


def batch() -> Batch:
    return Batch.of(pad([[4, 5, 6, 2], [7, 2]]), pad([[1, 5, 2], [1, 6, 7, 8, 2]]))


def model(dropout: float) -> Seq2Seq:
    torch.manual_seed(3)
    return Seq2Seq(SIZE, SIZE, {"kind": "gru", "dim": 8}, {"kind": "attentive", "dim": 8}, 8, dropout)


def test_distance_by_hand():
    p, q = [0.5, 0.5], [0.9, 0.1]
    forth = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    back = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    logits = torch.tensor([p, q], dtype=torch.float64).log()
    assert float(divergence(logits[:1], logits[1:])[0]) == pytest.approx((forth + back) / 2, rel=1e-12)


def test_gradients_of_the_distance():
    torch.manual_seed(1)
    one, other = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(divergence, (one, other))


def test_without_dropout_it_is_the_plain_loss():
    same = model(0.0)
    plain, twice = TeacherForcing(same, 0.1)(batch()), TeacherForcing(same, 0.1, 5.0)(batch())
    assert twice.count == plain.count
    torch.testing.assert_close(twice.total, plain.total)


def test_with_dropout_the_weight_counts_and_spare_places_do_not():
    torch.manual_seed(1)
    seen = [float(TeacherForcing(model(0.4), 0.1, weight)(batch()).total.detach()) for weight in (1e-9, 1.0, 3.0)]
    assert seen[2] - seen[0] == pytest.approx(3 * (seen[1] - seen[0]), rel=1e-4)
    assert seen[1] > seen[0]
    rounded = Batch.of(batch().source, batch().target.pad_to(9))
    index = torch.cat([rounded.index, torch.tensor([2, 2])])  # places of <pad> in the first row
    spare = Batch(rounded.source, rounded.target, index, rounded.rows, 2)
    same = model(0.0)
    torch.testing.assert_close(
        TeacherForcing(same, 0.1, 2.0)(spare).total, TeacherForcing(same, 0.1, 2.0)(batch()).total
    )


def test_it_belongs_to_training_alone():
    judged = TeacherForcing(model(0.4), 0.1, 5.0).eval()
    torch.testing.assert_close(judged(batch()).total, TeacherForcing(judged.model).eval()(batch()).total)


class Noisy(nn.Module):
    """Says something else every time."""

    def __init__(self):
        super().__init__()
        self.said = iter(torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 2.0], [3.0, 0.5]]]))

    def forward(self, source):
        return next(self.said)


def test_labels_by_hand_with_weights():
    labelled = LabelBatch(pad([[4], [4]]), torch.tensor([0, -1]), torch.tensor([2.0, 1.0]), 1, (0, 1))
    loss = CrossEntropy(Noisy(), r_drop=4.0)(labelled)
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    nats = -first.log_softmax(-1)[0] - second.log_softmax(-1)[0]
    wanted = 2.0 * (nats + 4.0 * divergence(first[None], second[None])[0]) / 2
    assert float(loss.total) == pytest.approx(float(wanted), rel=1e-6)
    assert loss.count == 1


def test_where_nothing_can_agree_it_is_refused():
    settings = Training.of({"r_drop": 1.0})
    with pytest.raises(SeqloomError, match=r"training\.r_drop goes with translate and tag.*this training of generate"):
        make_objective(nn.Identity(), settings, "generate")
    with pytest.raises(SeqloomError, match="r_drop"):
        make_objective(nn.Identity(), settings, "table", "number")
    assert make_objective(nn.Identity(), settings, "table", "label")
    with pytest.raises(SeqloomError, match=r"training\.r_drop is at least 0"):
        Training.of({"r_drop": -1.0})
