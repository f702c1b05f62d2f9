"""Gates and states over time are those of the cells, in the order of the text; so is where a tape was looked at."""

from __future__ import annotations

import pytest
import torch

from seqloom.inspection.gates import gates, self_attention_weights
from seqloom.models.language_model import LanguageModel
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, shake, source_rows, tiny_model

LENGTHS = torch.tensor([5, 2])


@pytest.mark.parametrize("cell", list(CELLS))
def test_every_layer_and_direction_reports_what_its_cell_names(cell):
    stack = shake(Recurrent(3, 4, cell, 2, 2).double(), 1)
    x, visible = drawn(2, 5, 3), Visibility(lengths=LENGTHS)
    outputs, _ = stack.run(x, visible)
    found = gates(stack, lambda: stack(x, visible), LENGTHS)
    assert [(one.layer, one.direction) for one in found] == [(f"layers.{n}", way) for n in (0, 1) for way in (0, 1)]
    for one in found:
        assert tuple(one.values) == CELLS[cell].names
        assert all(value.shape == (2, 5, 4) for value in one.values.values())
        said = outputs[int(one.layer[-1])][:, :, 4 * one.direction :][:, :, :4]
        for row, length in enumerate(LENGTHS.tolist()):
            close(one.values["state"][row, :length], said[row, :length])


def test_gates_of_an_lstm_are_its_formula():
    stack = shake(Recurrent(3, 4, "lstm").double(), 1)
    x, cell = drawn(2, 5, 3), stack.layers[0].cells[0]
    (one,) = gates(stack, lambda: stack(x, Visibility()))
    before = torch.cat([torch.zeros(2, 1, 4).double(), one.values["state"][:, :-1]], 1)
    forget = (x @ cell.weight[4:8].mT + before @ cell.recurrent[4:8].mT + cell.bias[4:8]).sigmoid()
    close(one.values["forget"], forget)
    kept = torch.cat([torch.zeros(2, 1, 4).double(), one.values["cell"][:, :-1]], 1)
    close(one.values["cell"], forget * kept + one.values["input"] * one.values["candidate"])


@pytest.mark.parametrize("cell", ["gru", "lstmn"])
def test_what_training_drops_is_there(cell):
    """Whoever looks in the middle of a training sees the model as it is, the same each time."""
    stack, x = Recurrent(3, 4, {"kind": cell, "zoneout": 0.3}, 2, dropout=0.5).double().train(), drawn(2, 5, 3)
    one, two = (
        [part.values["state"] for part in gates(stack.train(), lambda: stack(x, Visibility()))] for _ in range(2)
    )
    close(one, two)
    if cell == "lstmn":
        one, two = ([*self_attention_weights(stack.train(), lambda: stack(x, Visibility())).values()] for _ in range(2))
        close(one, two)


def test_a_decoder_that_steps_is_joined_over_time():
    model = shake(
        tiny_model("gru", {"kind": "attentive", "cell": "lstm", "input_feeding": True, "layers": 2}).double(), 1
    )
    tokens = torch.randint(9, (3, 4))
    found = {one.layer: one.values for one in gates(model, lambda: model(source_rows(), tokens))}
    assert found["decoder.recurrent.layers.1"]["forget"].shape == (3, 4, 8)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("cell", ["attentive-rnn", "lstmn"])
def test_a_tape_gives_a_square(cell, window):
    encoder = {"kind": "recurrent", "cell": {"kind": cell, "window": window}, "dim": 4, "layers": 2}
    model = shake(LanguageModel(9, 0, encoder, embedding=3).double(), 1)
    tokens = torch.randint(9, (2, 5))
    found = self_attention_weights(model, lambda: model(tokens, tokens))
    assert list(found) == [f"encoder.recurrent.layers.{n}.cells.0" for n in (0, 1)]
    for weights in found.values():
        assert weights.shape == (2, 5, 5)
        assert weights.triu(1).eq(0).all(), "nobody looks ahead"
        if window:
            assert weights.tril(-window).eq(0).all()
        first = 1 if cell == "lstmn" else 0  # which has nothing to look at in its first step
        close(weights.sum(-1)[:, first:], torch.ones(2, 5 - first).double())
