"""The parallel scan and the cells trained by it, against loops, formulas by hand and the scan in log space."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.errors import SeqloomError
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.recurrent.minimal_cells import MinGruCell, MinLstmCell
from seqloom.parts.recurrent.scan import scan
from seqloom.parts.visibility import Visibility, keep
from tests.laws import close, drawn, gradients, shake, weighed

CELLS = {"mingru": MinGruCell, "minlstm": MinLstmCell}


def loop(a, b, start):
    h, found = start, []
    for t in range(a.size(1)):
        h = a[:, t] * h + b[:, t]
        found.append(h)
    return torch.stack(found, 1)


def in_log_space(a, b, start):
    """Heinsen 2023: log h = A + logcumsumexp(log b − A) with A = Σ log a; b and the start must be positive."""
    values = torch.cat([start[:, None], b], 1).log()
    factors = F.pad(a.log().cumsum(1), (0, 0, 1, 0))
    return (factors + torch.logcumsumexp(values - factors, 1)).exp()[:, 1:]


def draws(steps, dtype=torch.float64, rows=3, dim=4):
    a, b, start = drawn(rows, steps, dim).sigmoid(), drawn(rows, steps, dim, seed=2), drawn(rows, dim, seed=3)
    return tuple(part.to(dtype).requires_grad_() for part in (a, b, start))


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 65])
def test_a_scan_is_the_loop(steps):
    """Of any length, with values of either sign; and its gradients are the loop's."""
    one = draws(steps)
    found, wanted = scan(*one), loop(*one)
    close(found, wanted, 1e-12)
    close(torch.autograd.grad(weighed([found]), one), torch.autograd.grad(weighed([wanted]), one), 1e-12)


def test_gradients_of_a_scan_are_what_small_changes_do():
    assert torch.autograd.gradcheck(scan, draws(6))


@pytest.mark.parametrize("steps", [5, 300])
def test_a_scan_is_the_scan_in_log_space(steps):
    a, b, start = draws(steps)
    b, start = b.exp(), start.exp()
    close(scan(a, b, start), in_log_space(a, b, start), 1e-9)


@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0])
def test_float32_stays_right_over_thousands_of_steps(scale):
    """Also where gates are shut or open, so that products of thousands of factors underflow. The scan in log space is
    not as near, which is why it is not the one used."""
    a = (scale * drawn(2, 5000, 3)).sigmoid()
    b, start = (1 - a) * drawn(2, 5000, 3, seed=2).exp(), drawn(2, 3, seed=3).exp()
    wanted = loop(a, b, start)
    half = [part.float() for part in (a, b, start)]
    error = (scan(*half) - wanted).abs().max().item()
    assert error < 2e-5 * wanted.abs().max().item()
    assert error < 0.2 * (in_log_space(*half).double() - wanted).abs().max().item()


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("cell", CELLS)
def test_training_has_no_loop_over_time(cell):
    """Sixteen times the steps take a few more operations, forward and back, and kept memory grows as the steps do."""
    layer, counts, kept = Recurrent(3, 4, cell), [], []

    def note(tensor):
        kept[-1] += tensor.numel()
        return tensor

    for steps in (64, 1024):
        kept.append(0)
        x = torch.randn(2, steps, 3)
        with Counted() as mode, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            layer(x, Visibility())[0].sum().backward()
        counts.append(mode.count)
    assert counts[1] - counts[0] <= 4 * 10 * 4, "ten operations a pass or so, four passes more"
    assert kept[1] < 17 * kept[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_the_scan_says_what_steps_say_in_less_precision(cell, directions, dtype):
    """And both what float64 says, as near as the numbers allow, with their gradients."""
    torch.manual_seed(0)
    exact = shake(Recurrent(3, 8, cell, 2, directions).double(), 1)
    stack = Recurrent(3, 8, cell, 2, directions).to(dtype).eval()
    stack.load_state_dict(exact.state_dict())
    x, visible = drawn(4, 33, 3), Visibility(lengths=torch.tensor([33, 5, 1, 20]))
    wanted, fast = said(exact, x, visible), said(stack, x.to(dtype), visible)
    with watch(stack):
        plain = said(stack, x.to(dtype), visible)
    bound = 2e-5 if dtype == torch.float32 else 0.05
    assert {one.dtype for one in (*fast, *plain)} == {dtype}
    assert away(fast, wanted) <= bound
    assert away(plain, wanted) <= bound
    assert away(fast, plain) <= bound


def said(stack, x, visible):
    """Outputs at real places, last states and gradients."""
    y, final = stack(x, visible)
    told = [y[keep(visible.lengths, y.size(1))], *(part for layer in final for part in layer)]
    return [*told, *gradients(stack, told)]


def away(found, wanted):
    """The difference of all of it, relative to how much there is."""
    pairs = [(a.double(), b.double()) for a, b in zip(found, wanted, strict=True)]
    return (sum((a - b).pow(2).sum() for a, b in pairs) / sum(b.pow(2).sum() for _, b in pairs)).sqrt().item()


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def positive(v):
    return v + 0.5 if v >= 0 else sigmoid(v)


@pytest.mark.parametrize("x", [0.9, -1.5])
@pytest.mark.parametrize("cell", CELLS)
def test_by_hand(cell, x):
    """One unit, plain floats; the old state may be below zero."""
    made = CELLS[cell](1, 1).double()
    w, b, h = [0.6, -0.4, 0.8], [0.1, 0.2, -0.3], -0.7
    n = made.gates
    with torch.no_grad():
        made.weight.copy_(torch.tensor(w[:n])[:, None])
        made.bias.copy_(torch.tensor(b[:n]))
    v = [w[k] * x + b[k] for k in range(n)]
    if cell == "mingru":
        z = sigmoid(v[0])
        active = [z, positive(v[1])]
        wanted = (1 - z) * h + z * positive(v[1])
    else:
        i, f = sigmoid(v[0]), sigmoid(v[1])
        active = [i / (f + i), f / (f + i), positive(v[2])]
        wanted = f / (f + i) * h + i / (f + i) * positive(v[2])
    (found,), said = made.step(made.input(torch.tensor([[x]]).double()), (torch.tensor([[h]]).double(),))
    assert found.item() == pytest.approx(wanted, abs=1e-7)
    assert [one.item() for one in said] == pytest.approx([*active, wanted], abs=1e-7)


def test_shares_of_a_minlstm_are_right_where_both_gates_are_shut():
    cell = MinLstmCell(1, 1)
    with torch.no_grad():
        cell.weight.zero_()
        cell.bias.copy_(torch.tensor([-200.0, -201.0, 0.0]))
    _, (i, f, _, _) = cell.step(cell.input(torch.zeros(1, 1)), cell.start(1, torch.empty(0)))
    assert i.item() == pytest.approx(sigmoid(1.0), abs=1e-6)
    assert f.item() == pytest.approx(sigmoid(-1.0), abs=1e-6)


def test_a_mingru_remembers_for_long_in_bfloat16():
    """An update gate of 1/2000 is told from none, which 1 − z in bfloat16 is not."""
    cell = MinGruCell(1, 1)
    with torch.no_grad():
        cell.weight.zero_()
        cell.bias.copy_(torch.tensor([math.log(1 / 1999), 3.5]))
    cell, x = cell.bfloat16(), torch.zeros(1, 1500, 1).bfloat16()
    (y,) = cell.all_steps(x, cell.start(1, x))
    z = cell.bias[0].float().sigmoid().item()
    assert y[0, -1].item() == pytest.approx(4.0 * (1 - (1 - z) ** 1500), rel=0.02)


def test_a_minlstm_starts_by_remembering():
    assert MinLstmCell(2, 3).bias.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 3


def test_no_matrix_leads_from_state_to_state():
    assert set(dict(MinGruCell(2, 3).named_parameters())) == {"weight", "bias"}
    with pytest.raises(SeqloomError, match=r"mingru has none; choose dropout or cell\.zoneout, or the cell rnn"):
        Recurrent(3, 4, "mingru", weight_drop=0.5)
