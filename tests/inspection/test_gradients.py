"""Gradients through time, where the answer is known: a matrix of 0.5 halves them at every step."""

from __future__ import annotations

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.inspection.gradients import gradient_norms
from seqloom.models.language_model import LanguageModel
from seqloom.parts.recurrent.cells import RnnCell
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, shake, tiny_model

STEPS, DIM = 6, 4


def linear(scale, layers=1, directions=1):
    """RNNs without tanh whose recurrent matrix is `scale` times the identity."""
    stack = Recurrent(DIM, DIM, {"kind": "rnn", "activation": "none"}, layers, directions).double()
    with torch.no_grad():
        for layer in stack.layers:
            for cell in layer.cells:
                cell.recurrent.copy_(scale * torch.eye(DIM))
                cell.weight.copy_(torch.eye(*cell.weight.shape))
    return stack


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_powers_of_the_matrix(scale):
    stack, x = linear(scale), drawn(3, STEPS, DIM)
    (flow,) = gradient_norms(stack, lambda: stack(x, Visibility())[0][:, -1].sum())
    wanted = DIM**0.5 * torch.tensor([scale ** (STEPS - 1 - t) for t in range(STEPS)]).double()
    close(flow.norms, wanted.expand(3, STEPS))
    assert (flow.layer, flow.direction, flow.part) == ("layers.0", 0, "state")


def test_the_second_direction_reads_from_the_end():
    """What it says of the first place comes from all after it, of a row's real places alone."""
    stack, x, lengths = linear(0.5, directions=2), drawn(2, STEPS, DIM), torch.tensor([STEPS, 3])
    one, two = gradient_norms(stack, lambda: stack(x, Visibility(lengths=lengths))[0][:, 0, DIM:].sum(), lengths)
    assert one.norms.eq(0).all()
    halves = DIM**0.5 * 0.5 ** torch.arange(STEPS).double()
    close(two.norms[0], halves)
    close(two.norms[1], halves * (torch.arange(STEPS) < 3))


def test_depth():
    """Through two layers there are as many ways down as steps between: 0.5^k (k + 1)."""
    stack, x = linear(0.5, layers=2), drawn(1, STEPS, DIM)
    below, above = gradient_norms(stack, lambda: stack(x, Visibility())[0][:, -1].sum())
    back = torch.arange(STEPS - 1, -1, -1).double()
    close(above.norms[0], DIM**0.5 * 0.5**back)
    close(below.norms[0], DIM**0.5 * 0.5**back * (back + 1))


def test_both_tensors_of_an_lstm_and_no_trace():
    model = shake(LanguageModel(9, 0, {"kind": "lstm", "dim": 4, "layers": 2}, embedding=3).double(), 1)
    tokens = torch.randint(9, (2, 5))
    flows = gradient_norms(model, lambda: model(tokens, tokens).nats.view(2, 5)[:, -1].sum())
    assert [(flow.layer[-1], flow.part) for flow in flows] == [(n, part) for n in "01" for part in ("state", "cell")]
    assert all(flow.norms.shape == (2, 5) and flow.norms.gt(0).all() for flow in flows)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_hooks for part in model.modules())


class ThreeCell(RnnCell):
    """A user's own, with two sums beside its h."""

    parts = 3
    stepwise = True

    def step(self, gates, state):
        (h,), active = super().step(gates, state)
        return (h, state[1] + h, state[2] - h), active


def test_a_state_of_more_tensors():
    stack, x = Recurrent(3, 4, ThreeCell).double(), drawn(2, 5, 3)
    flows = gradient_norms(stack, lambda: stack(x, Visibility())[0][:, -1].sum())
    assert [flow.part for flow in flows] == ["state", "cell", "2"]


def test_the_numbers_are_those_of_small_changes():
    stack, x = shake(Recurrent(3, 4, "gru").double(), 1), drawn(1, 5, 3)
    (flow,) = gradient_norms(stack, lambda: stack(x, Visibility())[0][:, -1].sum())
    _, state = stack(x[:, :2], Visibility(causal=True))

    def rest(h):
        return stack(x[:, 2:], Visibility(causal=True), ((h,),))[0][:, -1].sum()

    slope = torch.autograd.functional.jacobian(rest, state[0][0])
    close(flow.norms[0, 1], slope.norm())


def test_a_model_without_recurrence_says_so():
    model = tiny_model("transformer", "transformer")
    with pytest.raises(SeqloomError, match="this model has no recurrent layer"):
        gradient_norms(model, lambda: torch.zeros(()))
