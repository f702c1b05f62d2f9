"""Objectives of labels and numbers: their gradients, weights, counts, and that pieces add up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqloom.data.batches.collate import pad
from seqloom.data.batches.labels import LabelBatch
from seqloom.training.objectives.labels import BinaryCrossEntropy, CrossEntropy, SquaredError
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training


class Fixed(nn.Module):
    """Says what it was given, so that gradients by the logits can be looked at."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float32))

    def forward(self, source):
        return self.logits[: len(source.host)]


def batch(target, weight=None):
    target = torch.tensor(target)
    count = int((target >= 0).sum()) if target.dtype == torch.int64 else len(target)
    weights = None if weight is None else torch.tensor(weight)
    return LabelBatch(pad([[4]] * len(target)), target, weights, count, tuple(range(len(target))))


LOGITS = [[1.0, -0.5, 0.3], [0.2, 0.1, -2.0]]


def test_softmax_with_cross_entropy_has_the_gradient_guess_minus_truth():
    model = Fixed(LOGITS)
    loss = CrossEntropy(model)(batch([2, 0]))
    loss.total.backward()
    y = torch.tensor([[0.0, 0, 1], [1, 0, 0]])
    torch.testing.assert_close(model.logits.grad, model.logits.detach().softmax(-1) - y)
    p = model.logits.detach().softmax(-1)
    assert float(loss.total.detach()) == pytest.approx(-math.log(p[0, 2]) - math.log(p[1, 0]), rel=1e-6)
    assert loss.count == 2


def test_weights_change_the_sum_and_not_the_count():
    model = Fixed(LOGITS)
    plain = [float(CrossEntropy(model)(batch([2])).total.detach()), 0.0]
    plain[1] = float(CrossEntropy(model)(batch([2, 0])).total.detach()) - plain[0]
    loss = CrossEntropy(model)(batch([2, 0], [3.0, 0.5]))
    assert float(loss.total.detach()) == pytest.approx(3 * plain[0] + 0.5 * plain[1], rel=1e-6)
    assert loss.count == 2


def test_a_label_that_training_lacks_is_left_out():
    model = Fixed(LOGITS)
    loss = CrossEntropy(model)(batch([2, -1]))
    assert float(loss.total.detach()) == pytest.approx(float(CrossEntropy(model)(batch([2])).total.detach()))
    assert loss.count == 1


def test_smoothing_belongs_to_training_alone():
    objective = CrossEntropy(Fixed(LOGITS), label_smoothing=0.3)
    p = torch.tensor(LOGITS).log_softmax(-1)
    wanted = -(0.7 * p[0, 2] + 0.3 * p[0].mean())
    assert float(objective(batch([2])).total.detach()) == pytest.approx(float(wanted), rel=1e-6)
    assert float(objective.eval()(batch([2])).total.detach()) == pytest.approx(-float(p[0, 2]), rel=1e-6)


def test_several_labels_by_hand():
    model = Fixed([[0.0, 2.0]])
    loss = BinaryCrossEntropy(model)(batch([[1.0, 0.0]], [[2.0, 1.0]]))
    assert float(loss.total.detach()) == pytest.approx(2 * math.log(2) + math.log(1 + math.exp(2)), rel=1e-6)
    assert loss.count == 1
    loss.total.backward()
    torch.testing.assert_close(model.logits.grad, torch.tensor([[2 * (0.5 - 1), 1 / (1 + math.exp(-2.0))]]))
    smooth = BinaryCrossEntropy(model, label_smoothing=0.2)(batch([[1.0, 0.0]]))
    by_hand = math.log(2) + math.log(1 + math.exp(2)) - 0.1 * 2
    assert float(smooth.total.detach()) == pytest.approx(by_hand, rel=1e-6)


def test_squared_error_by_hand():
    loss = SquaredError(Fixed([[1.5], [-1.0]]))(batch([1.0, 1.0]))
    assert float(loss.total.detach()) == pytest.approx(0.25 + 4.0)
    assert loss.count == 2


@pytest.mark.parametrize(
    ("kind", "target", "weight"),
    [
        ("label", [0, 2, 1, -1, 2], [1.0, 2.0, 0.5, 1.0, 1.0]),
        ("labels", [[1.0, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], None),
        ("number", [0.5, -1.0, 2.0, 0.0, 3.0], None),
    ],
)
def test_pieces_add_up_and_an_emptied_batch_counts_for_nothing(kind, target, weight):
    torch.manual_seed(0)
    rows = pad([[4, 5], [6], [7, 8, 4], [5], [6, 6]])
    model = nn.Sequential(_Tokens(), nn.Linear(4, 1 if kind == "number" else 3))
    objective = make_objective(model, Training.of({}), "classify", kind)
    whole = batch(target, weight)
    whole = LabelBatch(rows, whole.target, whole.weight, whole.count, whole.rows)
    parts = [objective(piece) for piece in whole.micro_batches(3)]
    assert len(parts) == 3
    full = objective(whole)
    assert sum(part.count for part in parts) == full.count
    torch.testing.assert_close(torch.stack([part.total for part in parts]).sum(), full.total)
    nothing = objective(whole.zero_weight_row())
    nothing.total.backward()
    assert (float(nothing.total.detach()), nothing.count) == (0.0, 0)
    assert all(p.grad is not None and p.grad.eq(0).all() for p in model.parameters())


class _Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)

    def forward(self, source):
        return self.embedding(source.tokens[:, 0])
