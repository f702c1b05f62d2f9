"""Watching."""

import pytest
import torch

from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility


def test_every_part_by_its_name_one_tensor_a_call():
    model = torch.nn.ModuleDict({"rnn": Recurrent(4, 4, "gru", 2, 2), "self": MultiHeadAttention(4, 2)})
    x = torch.randn(3, 5, 4)
    with watch(model) as seen:
        model["rnn"](x, Visibility())
        model["self"](x, Visibility())
        model["self"](x[:, :2], Visibility())
    assert [tuple(report.shape) for report in seen["self"]] == [(3, 2, 5, 5), (3, 2, 2, 2)]
    # Each direction reports: rows, steps, what the cell names, width.
    assert [tuple(report.shape) for report in seen["rnn.layers.0"]] == [(3, 5, 4, 4)] * 2
    assert len(seen["rnn.layers.1"]) == 2


def test_gates_are_those_of_the_cell():
    rnn = Recurrent(4, 3, "lstm")
    x = torch.randn(2, 5, 4)
    with watch(rnn) as seen:
        y, state = rnn(x, Visibility())
    (report,) = seen["layers.0"]
    names = rnn.layers[0].cells[0].names
    assert torch.equal(report[:, :, names.index("state")], y)
    assert torch.equal(report[:, -1, names.index("cell")], state[0][1])
    gates = [names.index(name) for name in ("input", "forget", "output")]
    assert report[:, :, gates].min() >= 0
    assert report[:, :, gates].max() <= 1


def test_probes_are_taken_away_even_after_an_error():
    model, probes = MultiHeadAttention(4, 2), []

    def fail():
        with watch(model):
            probes.append(model.probe)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert probes != [None]
    assert model.probe is None


def test_nobody_watching_means_nothing_is_kept():
    model = MultiHeadAttention(4, 2)
    with watch(model) as seen:
        pass
    model(torch.randn(1, 2, 4), Visibility())
    assert not any(seen.values())
