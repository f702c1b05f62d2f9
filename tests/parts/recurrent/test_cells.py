"""Conventions of the cells, against numbers worked by hand with plain floats."""

import math
from itertools import product

import pytest
import torch
from torch.nn import functional as F

from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.fast.recurrent.pointwise import is_affine
from seqloom.parts.recurrent.cells import CELLS, GruCell, LstmCell, RnnCell, as_dims
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility
from tests.laws import CELL_CHOICES, close, drawn, named, shake


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(("cell", "wanted"), [("rnn", 2080), ("gru", 3 * 2080), ("lstm", 8320)])
def test_one_trainable_bias_for_each_gate(cell, wanted):
    assert size(Recurrent(32, 32, cell)) == wanted
    assert size(Recurrent(32, 32, cell, directions=2)) == 2 * wanted
    assert size(Recurrent(32, 32, cell, layers=3)) == 3 * wanted


def test_two_directions_make_the_next_layer_wider():
    assert size(Recurrent(32, 32, "rnn", layers=2, directions=2)) == 2 * 2080 + 2 * (64 * 32 + 32 * 32 + 32)


def filled(cell, **parameters):
    """A cell whose parameters are given as nested lists of floats."""
    cell = cell.double()
    with torch.no_grad():
        for name, values in parameters.items():
            getattr(cell, name).copy_(torch.tensor(values, dtype=torch.float64).view_as(getattr(cell, name)))
    return cell


def test_rnn_by_hand():
    cell = filled(RnnCell(2, 1), weight=[[0.5, -1.0]], recurrent=[[2.0]], bias=[0.25])
    x, h = [0.3, 0.7], -0.4
    wanted = math.tanh(0.5 * 0.3 - 1.0 * 0.7 + 2.0 * -0.4 + 0.25)
    (found,), _ = cell.step(cell.input(torch.tensor([x]).double()), (torch.tensor([[h]]).double(),))
    assert found.item() == pytest.approx(wanted, abs=1e-7)


# Rows of W and U: reset, update, candidate, each for two units.
W = [[0.1], [-0.2], [0.3], [0.4], [-0.5], [0.6]]
U = [[0.7, -0.8], [0.9, 1.0], [-1.1, 1.2], [1.3, -1.4], [1.5, 0.2], [-0.3, 0.8]]
B = [0.01, -0.02, 0.03, 0.04, -0.05, 0.06]
X, H = 0.9, [0.5, -0.25]


def gru_by_hand(reset):
    """H = Z⊙H₋ + (1−Z)⊙H̃, with plain floats."""
    product_ = [[W[g][0] * X + B[g], U[g][0] * H[0] + U[g][1] * H[1]] for g in range(6)]
    r = [sigmoid(sum(product_[i])) for i in (0, 1)]
    z = [sigmoid(sum(product_[i])) for i in (2, 3)]
    if reset == "before":  # H̃ = tanh(W x + (R⊙H₋) U + b)
        inner = [U[g][0] * (r[0] * H[0]) + U[g][1] * (r[1] * H[1]) for g in (4, 5)]
    else:  # H̃ = tanh(W x + b + R⊙(H₋ U))
        inner = [r[i] * product_[4 + i][1] for i in (0, 1)]
    candidate = [math.tanh(product_[4 + i][0] + inner[i]) for i in (0, 1)]
    return r, z, candidate, [z[i] * H[i] + (1 - z[i]) * candidate[i] for i in (0, 1)]


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_by_hand(reset):
    cell = filled(GruCell(1, 2, reset_gate=reset), weight=W, recurrent=U, bias=B)
    state = (torch.tensor([H], dtype=torch.float64),)
    (h,), active = cell.step(cell.input(torch.tensor([[X]], dtype=torch.float64)), state)
    for found, wanted in zip((*active, h), (*gru_by_hand(reset), gru_by_hand(reset)[3]), strict=True):
        assert found[0].tolist() == pytest.approx(wanted, abs=1e-12)
    assert cell.names == ("reset", "update", "candidate", "state")


def test_the_two_resets_differ():
    assert gru_by_hand("before")[3] != pytest.approx(gru_by_hand("after")[3], abs=1e-3)


def test_update_gate_open_keeps_the_old_state():
    """Z = 1 keeps H₋ and Z = 0 takes H̃: the opposite convention would swap them."""
    cell = shake(GruCell(3, 4).double(), 1)
    h, x = drawn(2, 4), drawn(2, 3)
    with torch.no_grad():
        cell.bias[4:8] = 100.0
        close(cell.step(cell.input(x), (h,))[0][0], h)
        cell.bias[4:8] = -100.0
        (new,), (_, _, candidate, _) = cell.step(cell.input(x), (h,))
        close(new, candidate)


def test_lstm_by_hand():
    w, u, b = [0.1, -0.2, 0.3, 0.4], [0.5, 0.6, -0.7, 0.8], [0.01, 0.02, 0.03, -0.04]
    cell = filled(LstmCell(1, 1), weight=[[v] for v in w], recurrent=[[v] for v in u], bias=b)
    x, h, c = 0.9, -0.3, 0.8
    i, f, g, o = (w[k] * x + u[k] * h + b[k] for k in range(4))
    i, f, g, o = sigmoid(i), sigmoid(f), math.tanh(g), sigmoid(o)
    new_c = f * c + i * g
    new_h = o * math.tanh(new_c)
    state = tuple(torch.tensor([[v]], dtype=torch.float64) for v in (h, c))
    (found_h, found_c), active = cell.step(cell.input(torch.tensor([[x]], dtype=torch.float64)), state)
    assert (found_h.item(), found_c.item()) == pytest.approx((new_h, new_c), abs=1e-12)
    assert [a.item() for a in active] == pytest.approx([i, f, g, o, new_c, new_h], abs=1e-12)
    assert cell.names == ("input", "forget", "candidate", "output", "cell", "state")


def test_lstm_starts_by_remembering():
    assert LstmCell(2, 3).bias.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6
    assert LstmCell(2, 3, forget_bias=0.0).bias.tolist() == [0.0] * 12


def joint(cell):
    """U and W as one matrix [dim + input, gates·dim], which multiplies [h; x]."""
    return torch.cat([cell.recurrent, cell.weight], 1).mT


@pytest.mark.parametrize("choice", CELL_CHOICES, ids=named)
def test_joint_matrix_gives_the_same_products(choice):
    """[h; x] times one matrix, as the textbook draws it, is W x + U h: in every cell that has U and no norm between."""
    cell = shake(build(CELLS, choice, input_dim=3, dim=4).double(), 2)
    if not (cell.has_recurrent and is_affine(cell)):
        return
    x, h = drawn(5, 3), drawn(5, 4, seed=12)
    assert joint(cell).shape == (3 + 4, cell.gates * 4)
    close(torch.cat([h, x], 1) @ joint(cell) + cell.bias, cell.input(x) + F.linear(h, cell.recurrent))


def test_joint_matrix_gives_the_same_step():
    """The step of an RNN and of an LSTM written with [h; x] alone."""
    x, h, c = drawn(5, 3), drawn(5, 4, seed=12), drawn(5, 4, seed=13)
    rnn, lstm = shake(RnnCell(3, 4).double(), 2), shake(LstmCell(3, 4).double(), 2)
    close(rnn.step(rnn.input(x), (h,))[0][0], (torch.cat([h, x], 1) @ joint(rnn) + rnn.bias).tanh())
    i, f, g, o = (torch.cat([h, x], 1) @ joint(lstm) + lstm.bias).chunk(4, 1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    close(lstm.step(lstm.input(x), (h, c))[0], (o.sigmoid() * new.tanh(), new))


@pytest.mark.parametrize("choice", CELL_CHOICES, ids=named)
def test_a_cell_reports_what_it_names(choice):
    cell = build(CELLS, choice, input_dim=3, dim=4)
    state = cell.start(2, torch.empty(0))
    new, active = cell.step(cell.input(torch.randn(2, 3)), state)
    assert all(part.shape == (2, 4) for part in (*state[: cell.parts], *new[: cell.parts]))
    assert len(state) == len(new) >= cell.parts
    assert len(active) == len(cell.names)
    assert all(a.shape == (2, 4) for a in active)
    assert torch.equal(active[cell.names.index("state")], new[0])


def test_widths():
    assert as_dims(5, 3) == [5, 5, 5]
    assert as_dims([5, 6], 2) == [5, 6]
    with pytest.raises(SeqloomError, match="3 layers need 3 widths, here 2"):
        as_dims([5, 6], 3)


@pytest.mark.parametrize(("wrong", "guess"), [("befor", "before"), ("afte", "after")])
def test_a_wrong_reset_is_named(wrong, guess):
    with pytest.raises(SeqloomError, match=f"unknown reset_gate '{wrong}'; did you mean '{guess}'"):
        GruCell(2, 2, reset_gate=wrong)


def test_every_cell_starts_within_its_bound():
    for name, dim in product(CELLS, (4, 64)):
        cell = build(CELLS, name, input_dim=7, dim=dim)
        for weight in (cell.weight, cell.recurrent) if cell.has_recurrent else (cell.weight,):
            assert 0.5 * dim**-0.5 < weight.abs().max().item() <= dim**-0.5


@pytest.mark.parametrize(("activation", "f"), [("tanh", math.tanh), ("relu", lambda v: max(v, 0.0)), ("none", float)])
def test_activations_by_hand(activation, f):
    cell = filled(RnnCell(1, 1, activation=activation), weight=[0.5], recurrent=[-1.5], bias=[0.25])
    for x, h in ((0.3, -0.4), (0.1, 0.9)):
        (found,), _ = cell(
            cell.input(torch.tensor([[x]], dtype=torch.float64)), (torch.tensor([[h]], dtype=torch.float64),)
        )
        assert found.item() == pytest.approx(f(0.5 * x - 1.5 * h + 0.25), abs=1e-12)


def test_without_tanh_a_state_is_a_power_of_the_matrix():
    """And so it explodes where tanh holds it."""
    sizes = {}
    for activation in ("none", "tanh"):
        stack = Recurrent(2, 2, {"kind": "rnn", "activation": activation}).double()
        filled(stack.layers[0].cells[0], weight=[[1, 0], [0, 1]], recurrent=[[1.5, 0], [0, 0.5]], bias=[0, 0])
        y, _ = stack(torch.tensor([[[1.0, 1.0]] + [[0.0, 0.0]] * 30]).double(), Visibility())
        sizes[activation] = y[0, -1]
    close(sizes["none"], torch.tensor([1.5**30, 0.5**30], dtype=torch.float64), 1e-12)
    assert sizes["tanh"].abs().max() < 1


@pytest.mark.parametrize("cell", ["tanh", "relu"])
def test_both_kernels_of_the_rnn_are_torchs(cell):
    ours = shake(Recurrent(3, 4, {"kind": "rnn", "activation": cell}).double(), 1)
    other, one = torch.nn.RNN(3, 4, nonlinearity=cell, batch_first=True).double(), ours.layers[0].cells[0]
    with torch.no_grad():
        for name, value in (("weight_ih_l0", one.weight), ("weight_hh_l0", one.recurrent), ("bias_ih_l0", one.bias)):
            getattr(other, name).copy_(value)
        other.bias_hh_l0.zero_()
    x = drawn(2, 5, 3)
    close(ours(x, Visibility())[0], other(x)[0])


def evened(x, scale, shift=0.0):
    """(x − μ)/σ over the last axis, times a scale, and a shift: the formula, not torch's function."""
    around = x - x.mean(-1, keepdim=True)
    return scale * around / (around.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() + shift


def test_layer_norm_in_an_rnn():
    cell = shake(RnnCell(3, 4, norm=True).double(), 1)
    x, h = drawn(5, 3), drawn(5, 4, seed=2)
    wanted = (evened(x @ cell.weight.mT + h @ cell.recurrent.mT, cell.norm.weight) + cell.bias).tanh()
    close(cell.step(cell.input(x), (h,))[0][0], wanted)


def test_layer_norm_in_an_lstm():
    """All four gates are evened together, from the input and from the state apart, and c before it is shown."""
    cell = shake(LstmCell(3, 4, norm=True).double(), 1)
    x, h, c = drawn(5, 3), drawn(5, 4, seed=2), drawn(5, 4, seed=3)
    one, two, three = cell.norms
    gates = evened(x @ cell.weight.mT, one.weight) + evened(h @ cell.recurrent.mT, two.weight) + cell.bias
    i, f, g, o = gates.chunk(4, -1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    close(cell.step(cell.input(x), (h, c))[0], (o.sigmoid() * evened(new, three.weight, three.bias).tanh(), new))


@pytest.mark.parametrize("reset", ["before", "after"])
def test_layer_norm_in_a_gru(reset):
    cell = shake(GruCell(3, 4, reset_gate=reset, norm=True).double(), 1)
    x, h, d = drawn(5, 3), drawn(5, 4, seed=2), 8
    one, two, three, four = (norm.weight for norm in cell.norms)
    w, u, b = cell.weight, cell.recurrent, cell.bias
    r, z = (evened(x @ w[:d].mT, one) + evened(h @ u[:d].mT, three) + b[:d]).sigmoid().chunk(2, -1)
    inner = r * evened(h @ u[d:].mT, four) if reset == "after" else evened((r * h) @ u[d:].mT, four)
    candidate = (evened(x @ w[d:].mT, two) + b[d:] + inner).tanh()
    close(cell.step(cell.input(x), (h,))[0][0], z * h + (1 - z) * candidate)


@pytest.mark.parametrize("name", list(CELLS))
def test_zoneout_keeps_the_old_state(name):
    """In training each value is the old one or the new one; in evaluation, the mean of many trainings."""
    torch.manual_seed(0)
    plain = build(CELLS, name, input_dim=3, dim=4).double()
    cell = build(CELLS, {"kind": name, "zoneout": 0.3}, input_dim=3, dim=4).double()
    cell.load_state_dict(plain.state_dict())
    rows = 4000
    x = drawn(1, 3).expand(rows, 3)
    state = plain(plain.input(drawn(1, 3, seed=5).expand(rows, 3)), plain.start(rows, x))[0]
    gates = cell.input(x)
    new, mixed, even = plain(gates, state)[0], cell.train()(gates, state)[0], cell.eval()(gates, state)
    for part in range(cell.parts):
        kept, taken = mixed[part] == state[part], mixed[part] == new[part]
        assert (kept ^ taken).all()
        assert kept.double().mean().item() == pytest.approx(0.3, abs=0.02)
        close(even[0][part], 0.3 * state[part] + 0.7 * new[part])
    assert torch.equal(even[1][cell.names.index("state")], even[0][0])


def test_zoneout_has_a_share_for_each_tensor_of_the_state():
    cell = LstmCell(2, 3, zoneout=[0.0, 0.5]).eval()
    x, state = torch.randn(2, 2), (torch.randn(2, 3), torch.randn(2, 3))
    (h, c), (*_, cell_said, state_said) = cell(cell.input(x), state)
    (new_h, new_c), _ = cell.step(cell.input(x), state)
    close(h, new_h, 1e-6)
    close(c, 0.5 * (state[1] + new_c), 1e-6)
    assert torch.equal(cell_said, c)
    assert torch.equal(state_said, h)
    with pytest.raises(SeqloomError, match="zoneout is one share, or 1 for this cell, here 2"):
        GruCell(2, 3, zoneout=[0.1, 0.2])
    with pytest.raises(SeqloomError, match=r"zoneout is at least 0 and below 1, here 1\.0"):
        GruCell(2, 3, zoneout=1.0)
    with pytest.raises(SeqloomError, match=r"zoneout is at least 0 and below 1, here .'a'"):
        build(CELLS, {"kind": "gru", "zoneout": ["a"]}, input_dim=2, dim=3)


def test_a_wrong_activation_is_named():
    with pytest.raises(SeqloomError, match="unknown activation 'tan'; did you mean 'tanh'"):
        RnnCell(2, 2, activation="tan")
