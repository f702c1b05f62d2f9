"""Whole recurrent stacks, against torch.nn with packed sequences."""

import re
import runpy
from functools import partial
from itertools import product
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom import hardware
from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.models.decoders import DECODERS
from seqloom.models.protocols import Encoded
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility, flip, keep
from tests import laws
from tests.laws import OwnCell, close, drawn, shake

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([5, 2, 7, 1])


def reference(ours, cell, input_dim, dim, layers, directions, dtype):
    """torch's own module with our weights; its second bias is zero."""
    other = TORCH[cell](input_dim, dim, layers, bidirectional=directions == 2, batch_first=True).to(dtype)
    with torch.no_grad():
        for (depth, layer), way in product(enumerate(ours.layers), range(directions)):
            end = f"l{depth}" + "_reverse" * way
            getattr(other, f"weight_ih_{end}").copy_(layer.cells[way].weight)
            getattr(other, f"weight_hh_{end}").copy_(layer.cells[way].recurrent)
            getattr(other, f"bias_ih_{end}").copy_(layer.cells[way].bias)
            getattr(other, f"bias_hh_{end}").zero_()
    return other


def their_slopes(other, layers, directions):
    names = [f"l{depth}" + "_reverse" * way for depth in range(layers) for way in range(directions)]
    return [getattr(other, f"{part}_{end}").grad for end in names for part in ("weight_ih", "weight_hh", "bias_ih")]


def our_slopes(ours):
    cells = [cell for layer in ours.layers for cell in layer.cells]
    return [getattr(cell, part).grad for cell in cells for part in ("weight", "recurrent", "bias")]


def rows_first(state, layers, directions):
    """torch's [layers·directions, B, D] -> [layers, B, directions·D]."""
    return state.unflatten(0, (layers, directions)).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("ragged", [True, False], ids=["ragged", "full"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", list(TORCH))
def test_equals_torch(cell, layers, directions, ragged, dtype):
    bound = 1e-10 if dtype == torch.float64 else 1e-5
    ours = shake(Recurrent(3, 4, cell, layers, directions).double(), 1).to(dtype)
    other = reference(ours, cell, 3, 4, layers, directions, dtype)
    x = drawn(4, 7, 3).to(dtype).requires_grad_()
    z = x.detach().clone().requires_grad_()
    if ragged:
        y, final = ours(x, Visibility(lengths=LENGTHS))
        y = y * keep(LENGTHS, 7)[:, :, None]
        packed, end = other(pack_padded_sequence(z, LENGTHS, batch_first=True, enforce_sorted=False))
        wanted, _ = pad_packed_sequence(packed, batch_first=True)
    else:
        y, final = ours(x, Visibility())
        wanted, end = other(z)
    ends = [rows_first(part, layers, directions) for part in (end if cell == "lstm" else (end,))]
    found = [torch.stack(part) for part in zip(*final, strict=True)]
    near(y, wanted, bound)
    for a, b in zip(found, ends, strict=True):
        near(a, b, bound)
    weigh(y, *found).backward()
    weigh(wanted, *ends).backward()
    near(x.grad, z.grad, bound)
    for a, b in zip(our_slopes(ours), their_slopes(other, layers, directions), strict=True):
        near(a, b, bound)


def near(found, wanted, bound):
    """The largest difference, relative to the largest number."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= bound * max(1.0, wanted.abs().max().item())


def weigh(*outputs):
    return sum((y * torch.arange(y.numel()).cos().view_as(y)).sum() for y in outputs)


@pytest.mark.parametrize("cell", list(TORCH))
def test_starts_from_a_given_state(cell):
    ours = shake(Recurrent(3, 4, cell, 2).double(), 1)
    other = reference(ours, cell, 3, 4, 2, 1, torch.float64)
    x, h, c = drawn(4, 7, 3), drawn(2, 4, 4, seed=2), drawn(2, 4, 4, seed=3)
    wanted, _ = other(x, (h, c) if cell == "lstm" else h)
    state = tuple((h[i], c[i]) if cell == "lstm" else (h[i],) for i in range(2))
    close(ours(x, Visibility(), state)[0], wanted)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("cell", list(TORCH))
def test_single_steps_of_few_and_of_many_rows(cell, rows):
    """Which kernel takes a step may depend on the number of rows; what it says may not."""
    ours = shake(Recurrent(3, 4, cell, 2).double(), 1)
    other = reference(ours, cell, 3, 4, 2, 1, torch.float64)
    x = drawn(rows, 5, 3)
    state, found = None, []
    for t in range(5):
        y, state = ours(x[:, t : t + 1], Visibility(causal=True), state)
        found.append(y)
    close(torch.cat(found, 1), other(x)[0])


@pytest.mark.parametrize("directions", [1, 2])
def test_a_width_for_each_layer(directions):
    stack = Recurrent(3, [5, 2, 6], "gru", 3, directions)
    outputs, state = stack.run(torch.randn(2, 4, 3), Visibility())
    assert [y.shape for y in outputs] == [(2, 4, d * directions) for d in (5, 2, 6)]
    assert [part.shape for (part,) in state] == [(2, d * directions) for d in (5, 2, 6)]
    assert stack.out_dim == 6 * directions
    assert stack.state_dims == tuple((d * directions,) for d in (5, 2, 6))


def test_widths_that_do_not_fit_the_layers_are_named():
    with pytest.raises(SeqloomError, match="2 layers need 2 widths, here 3"):
        Recurrent(3, [5, 2, 6], "gru", 2)


def test_directions_are_one_or_two():
    with pytest.raises(SeqloomError, match="directions is 1 or 2, here 3"):
        Recurrent(3, 4, directions=3)


def test_the_second_direction_reads_from_the_end():
    """With one step a row both directions agree if their weights do; else the second is the first on reversed rows."""
    stack = shake(Recurrent(3, 4, "lstm", 1, 2).double(), 1)
    forward, backward = stack.layers[0].cells
    backward.load_state_dict(forward.state_dict())
    x = drawn(2, 5, 3)
    y, state = stack(x, Visibility())
    close(y[:, :, 4:], stack(x.flip(1), Visibility())[0][:, :, :4].flip(1))
    close(state[0][0][:, 4:], y[:, 0, 4:])  # the state after its last step stands at the first place


def test_flip_turns_real_steps_only():
    x = torch.arange(8).view(2, 4, 1)
    assert flip(x, torch.tensor([3, 4]))[:, :, 0].tolist() == [[2, 1, 0, 3], [7, 6, 5, 4]]
    assert flip(x, None)[:, :, 0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]
    lengths = torch.tensor([3, 1])
    assert torch.equal(flip(flip(x, lengths), lengths), x)


def test_a_users_own_cell_gives_a_whole_layer():
    stack = Recurrent(3, 4, OwnCell, 2, 2)
    y, state = stack(torch.randn(2, 5, 3), Visibility(lengths=torch.tensor([5, 3])))
    assert y.shape == (2, 5, 8)
    assert [[part.shape for part in layer] for layer in state] == [[(2, 8), (2, 8)]] * 2


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The cell that CONTRIBUTING.md shows, cut from there."""
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "(Cell):" in block]
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(dedent(block))
    return runpy.run_path(str(file))["UgrnnCell"]


def test_ten_lines_make_a_cell_that_obeys_every_law(own):
    for directions in (1, 2):
        read = laws.reads_recurrent(own, directions)
        for law in (laws.padding, laws.twin, laws.reporting, laws.dtypes):
            law(read)
    steps = laws.recurrent(own)
    for law in (laws.prefix, laws.causality, laws.picking, laws.twin, laws.gradient_check):
        law(steps)


def test_a_users_cell_stands_where_a_name_would(own):
    """In an encoder, a decoder and a language model; as a class, as a function, with settings of its own."""
    from seqloom.models.language_model import LanguageModel

    made = [own, lambda input_dim, dim: own(input_dim, dim), partial(own, zoneout=0.1)]
    for cell in made:
        model = LanguageModel(9, 0, {"kind": "recurrent", "cell": cell, "dim": 4, "layers": 2}, embedding=3)
        guess = model(torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long))
        guess.nats.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
    for kind, more in (("recurrent", {}), ("attentive", {"query": "previous"}), ("attentive", {"input_feeding": True})):
        encoder, decoder = Recurrent(3, 4, own, 2, 2), {"kind": kind, "cell": own, "dim": 8, **more}
        made = build(DECODERS, decoder, input_dim=3, memory_dim=8, final_dims=encoder.state_dims)
        outputs, final = encoder.run(torch.randn(2, 5, 3), Visibility())
        state = made.begin(Encoded(states=outputs[-1], lengths=None, summary=final[-1][0], final=final))
        assert made(torch.randn(2, 4, 3), state)[0].shape == (2, 4, 8)


@pytest.mark.parametrize("choice", laws.CELL_CHOICES, ids=laws.named)
@pytest.mark.parametrize("able", [True, False], ids=["bf16", "without"])
def test_half_precision_by_autocast(choice, able, monkeypatch):
    """As training does it: weights and states stay whole, products are halved; steps say what training says. So too on
    a processor for which oneDNN has no fused RNN in bf16."""
    monkeypatch.setattr(hardware, "_BF16", able and hardware._BF16)
    torch.manual_seed(0)
    stack, x = shake(Recurrent(8, 8, choice, 2), 1), torch.randn(3, 9, 8)
    wanted, _ = stack(x, Visibility(causal=True))
    state, found = None, []
    with torch.autocast("cpu", torch.bfloat16):
        whole, _ = stack(x, Visibility(causal=True))
        for piece in x.split([1, 5, 3], 1):
            y, state = stack(piece, Visibility(causal=True), state)
            found.append(y.float())
    for y in (whole.float(), torch.cat(found, 1)):
        assert (y - wanted).abs().max() <= 0.05 * max(1.0, wanted.abs().max())
    weigh(whole.float()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in stack.parameters())


@pytest.mark.parametrize("directions", [1, 2])
def test_dropped_weights_in_every_layer_and_direction(directions):
    """Zeros in the matrices from state to state, drawn once a call and in training alone."""
    torch.manual_seed(0)
    stack = Recurrent(4, 8, "gru", 2, directions, weight_drop=0.5).double().train()
    x = torch.randn(2, 5, 4).double()
    y, _ = stack(x, Visibility())
    assert not torch.allclose(y, stack(x, Visibility())[0])
    (y.sum()).backward()
    for layer in stack.layers:
        for cell in layer.cells:
            assert 0.3 < cell.recurrent.grad.eq(0).double().mean() < 0.7, "what was dropped has no gradient"
            assert cell.weight.grad.ne(0).all()
    assert torch.equal(stack.eval()(x, Visibility())[0], stack(x, Visibility())[0])


def test_dropout_stands_between_layers_only():
    torch.manual_seed(0)
    one, two = Recurrent(3, 50, "rnn", 1, dropout=0.9), Recurrent(3, 50, "rnn", 2, dropout=0.9)
    x = torch.randn(2, 5, 3)
    assert torch.equal(one.train()(x, Visibility())[0], one.eval()(x, Visibility())[0])
    outputs, quiet = two.train().run(x, Visibility())[0], two.eval().run(x, Visibility())[0]
    assert torch.equal(outputs[0], quiet[0])
    assert not torch.allclose(outputs[1], quiet[1])
