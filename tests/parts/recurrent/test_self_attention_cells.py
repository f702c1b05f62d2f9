"""Cells that look back over their own past, against examples worked with plain floats."""

from __future__ import annotations

import math

import pytest
import torch

from seqloom.build import build, complete
from seqloom.errors import SeqloomError
from seqloom.fast.recurrent.history_blocks import BLOCK_SIZE
from seqloom.models.decoders.bridge import Bridge
from seqloom.models.language_model import LanguageModel
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.recurrent.self_attention_cells import AttentiveCell, LstmnCell
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, gradients, shake

TAPES = ("attentive-rnn", "lstmn")


def softmax(values):
    top = [math.exp(value) for value in values]
    return [value / sum(top) for value in top]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def one_row(values):
    return torch.tensor(values, dtype=torch.float64).view(1, -1, 1)


def run(cell, xs, state=None):
    """All steps of one row of one unit: outputs, and the last state."""
    x = one_row(xs)
    state, found = cell.start(1, x) if state is None else state, []
    for t in range(len(xs)):
        state, _ = cell(cell.input(x[:, t]), state)
        found.append(state[0].item())
    return found, state


def test_attentive_rnn_by_hand():
    """h_t = tanh(A [x; c] + b), c_t mixes h_1 … h_t by softmax(h_t h_s): three steps of one unit."""
    cell, (w, u, b) = AttentiveCell(1, 1, score="dot").double(), (0.7, -1.2, 0.3)
    with torch.no_grad():
        cell.weight.fill_(w), cell.recurrent.fill_(u), cell.bias.fill_(b)
    xs = [0.5, -0.8, 1.1]
    h1 = math.tanh(w * xs[0] + b)
    c1 = h1  # nothing else to look at
    h2 = math.tanh(w * xs[1] + u * c1 + b)
    a = softmax([h2 * h1, h2 * h2])
    c2 = a[0] * h1 + a[1] * h2
    h3 = math.tanh(w * xs[2] + u * c2 + b)
    d = softmax([h3 * h1, h3 * h2, h3 * h3])
    c3 = d[0] * h1 + d[1] * h2 + d[2] * h3
    with watch(cell) as seen:
        found, _ = run(cell, xs)
    assert found == pytest.approx([c1, c2, c3], abs=1e-6)
    assert seen["look"][1].flatten().tolist() == pytest.approx(a, abs=1e-6)
    assert seen["look"][2].flatten().tolist() == pytest.approx(d, abs=1e-6)


def lstmn_by_hand(xs, w, u, b, v):
    """Cheng et al. 2016, equations 4 to 9, one unit. Gates in the order i, f, g, o; `v`: v, W_x, W_h̃, W_h, bias."""
    tape, summary, found = [], 0.0, []
    for x in xs:
        scores = [v[0] * math.tanh(v[3] * h + v[1] * x + v[2] * summary + v[4]) for h, _ in tape]
        weights = softmax(scores) if tape else []
        summary = sum(a * h for a, (h, _) in zip(weights, tape, strict=True))
        memory = sum(a * c for a, (_, c) in zip(weights, tape, strict=True))
        i, f, g, o = (w[k] * x + u[k] * summary + b[k] for k in range(4))
        c = sigmoid(f) * memory + sigmoid(i) * math.tanh(g)
        tape.append((sigmoid(o) * math.tanh(c), c))
        found.append(tape[-1])
    return found


def test_lstmn_by_hand():
    w, u, b, v = [0.4, -0.3, 0.9, 0.5], [0.6, 0.2, -0.7, 0.8], [0.1, 0.3, -0.2, 0.05], [1.3, 0.8, -0.5, 1.1, 0.2]
    cell, xs = LstmnCell(1, 1, score={"kind": "additive", "hidden": 1}).double(), [0.5, -0.8, 1.1, 0.2]
    with torch.no_grad():
        for name, values in (("weight", w), ("recurrent", u), ("bias", b)):
            getattr(cell, name).copy_(torch.tensor(values).view_as(getattr(cell, name)))
        score = cell.look.score
        score.weight.fill_(v[0]), score.query.weight.copy_(torch.tensor([v[1:3]]))
        score.key.weight.fill_(v[3]), score.query.bias.fill_(v[4])
    wanted = lstmn_by_hand(xs, w, u, b, v)
    found, state = run(cell, xs)
    assert found == pytest.approx([h for h, _ in wanted], abs=1e-6)
    assert state[1].item() == pytest.approx(wanted[-1][1], abs=1e-6)


def test_an_lstmn_starts_by_remembering():
    assert LstmnCell(2, 3).bias.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6
    assert LstmnCell(2, 3, forget_bias=0.5).bias.tolist() == [0.0] * 3 + [0.5] * 3 + [0.0] * 6


def test_what_a_decoder_starts_from():
    """An LSTMN's first state stands first on its tape; an attentive RNN's is c_0."""
    cell = shake(LstmnCell(2, 3).double(), 1)
    x, h, c = drawn(2, 2), drawn(2, 3, seed=2), drawn(2, 3, seed=3)
    (_, _, asked, _, tape), _ = cell(cell.input(x), (h, c))
    close(asked, h)  # the only entry has all the weight
    close(tape[0][1], torch.cat([h, c], -1)[:, None])
    other = shake(AttentiveCell(2, 3).double(), 1)
    (found, _), (hidden, _) = other(other.input(x), (h,))
    close(hidden, (x @ other.weight.mT + h @ other.recurrent.mT + other.bias).tanh())
    close(found, hidden)
    bridge = Bridge("last", 3, ((3, 3),), Recurrent(2, 3, "lstmn").state_dims)
    assert [
        len(layer) for layer in bridge(Encoded(states=drawn(2, 4, 3), summary=h, final=((h, c),), lengths=None))
    ] == [2]


@pytest.mark.parametrize("cell", TAPES)
def test_no_entry_is_no_entry(cell):
    """Rows whose state was multiplied by 0 go on as rows that start."""
    stack = shake(Recurrent(3, 4, {"kind": cell, "window": 5}, 2).double(), 1)
    visible, x = Visibility(causal=True), drawn(3, 6, 3)
    _, state = stack(x[:, :4], visible)

    def scaled(part, factor):
        return (
            part * factor.view(-1, *[1] * (part.dim() - 1))
            if isinstance(part, torch.Tensor)
            else tuple(scaled(inner, factor) for inner in part)
        )

    mixed, _ = stack(x[:, 4:], visible, scaled(state, torch.tensor([1.0, 0.0, 1.0]).double()))
    kept, _ = stack(x[:, 4:], visible, state)
    fresh, _ = stack(x[:, 4:], visible)
    close(mixed[[0, 2]], kept[[0, 2]])
    close(mixed[1], fresh[1])


@pytest.mark.parametrize("cell", TAPES)
def test_a_window_forgets_what_lies_behind_it(cell):
    """Until it is full it makes no difference; then it does, and the tape stays short."""
    whole, short = (shake(Recurrent(3, 4, {"kind": cell, "window": n}).double(), 1) for n in (None, 3))
    short.load_state_dict(whole.state_dict())
    x = drawn(2, 9, 3)
    assert not torch.allclose(whole(x, Visibility())[0], short(x, Visibility())[0])
    close(whole(x[:, :3], Visibility())[0], short(x[:, :3], Visibility())[0])
    for stack, entries in ((short, 3), (whole, 9)):
        _, (state,) = stack(x, Visibility(causal=True))
        assert sum(seen.size(1) for _, _, seen in state[-1]) == entries


@pytest.mark.parametrize("window", [None, 3, 40])
@pytest.mark.parametrize("cell", TAPES)
def test_blocks_make_no_difference(cell, window, monkeypatch):
    """A long tape in blocks of any size says the same, with the same gradients."""
    stack, x, found = shake(Recurrent(3, 4, {"kind": cell, "window": window}).double(), 1), drawn(2, 45, 3), []
    for block in (32, 7, 1, 1000):
        monkeypatch.setitem(BLOCK_SIZE, "cpu", block)
        y, _ = stack(x, Visibility())
        found.append([y, *gradients(stack, [y])])
    for other in found[1:]:
        close(other, found[0])


@pytest.mark.parametrize("cell", TAPES)
def test_what_training_keeps_grows_with_the_length_not_its_square(cell):
    """By a score that is a product; the additive one keeps a small network's answer for every pair."""
    stack, kept = Recurrent(16, 16, {"kind": cell, "score": "general"}), []
    for steps in (64, 256):
        places = {}

        def keep(tensor, places=places):
            storage = tensor.untyped_storage()
            places[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y, _ = stack(torch.randn(2, steps, 16), Visibility())
        kept.append(sum(places.values()))
        del y
    assert kept[1] < 7 * kept[0], "sixteen times, if every step kept a copy of its tape"


@pytest.mark.parametrize("cell", TAPES)
def test_weights_are_a_distribution_over_what_was(cell):
    stack = shake(Recurrent(3, 4, cell).double(), 1)
    with watch(stack) as seen:
        stack(drawn(2, 5, 3), Visibility())
    reports = seen["layers.0.cells.0.look"]
    assert [one.shape for one in reports] == [(2, 1, t + 1) for t in range(5)]
    for t, one in enumerate(reports):
        nothing = cell == "lstmn" and t == 0
        close(one.sum(-1), torch.full((2, 1), 0.0 if nothing else 1.0).double())
        if cell == "lstmn":
            assert one[:, :, 0].eq(0).all(), "before the first step there was nothing"


def test_a_tape_is_handed_on_only_to_those_who_read_on():
    stack = Recurrent(3, 4, "lstmn", 2)
    _, state = stack(torch.randn(2, 5, 3), Visibility(causal=True))
    assert [len(layer) for layer in state] == [5, 5]
    for lengths in (None, torch.tensor([5, 2])):
        _, state = stack(torch.randn(2, 5, 3), Visibility(lengths=lengths))
        assert [[part.shape for part in layer] for layer in state] == [[(2, 4)] * 2] * 2


@pytest.mark.parametrize("cell", [*CELLS, *({"kind": name, "window": 4} for name in TAPES)], ids=str)
def test_states_go_on_in_streams(cell):
    """Truncated back-propagation: two batches that go on say what one does; what grows without bound does not go on."""
    torch.manual_seed(0)
    encoder = {"kind": "recurrent", "cell": cell, "dim": 6, "layers": 2}
    model = LanguageModel(11, 0, encoder, embedding=5, dropout=0.0).double().eval()
    assert model.carries == (cell not in TAPES)
    x = torch.randint(0, 11, (3, 13), generator=torch.Generator().manual_seed(1))
    whole = model(x[:, :-1], x[:, 1:]).nats.view(3, 12)
    first = model(x[:, :5], x[:, 1:6])
    second = model(x[:, 5:-1], x[:, 6:], None, first.state)
    close(torch.cat([first.nats.view(3, 5), second.nats.view(3, 7)], 1), whole)
    learning = model.train()(x[:, 5:-1], x[:, 6:], None, first.state)  # with rows that begin afresh
    assert learning.nats.isfinite().all()


def test_wrong_settings_are_named():
    with pytest.raises(SeqloomError, match="window of a self-attention cell is at least 1, here 0"):
        AttentiveCell(2, 3, window=0)
    with pytest.raises(SeqloomError, match="window of LstmnCell is at least 1, here 0"):
        complete(CELLS, {"kind": "lstmn", "window": 0})
    with pytest.raises(SeqloomError, match="score 'dot' needs queries and keys of one width"):
        build(CELLS, {"kind": "lstmn", "score": "dot"}, input_dim=2, dim=3)
    assert {complete(CELLS, {"kind": "attentive-rnn", "score": score})["score"]["kind"] for score in SCORES} == {
        *SCORES
    }
