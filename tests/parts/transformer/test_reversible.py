"""Reversible layers: the same numbers as without, and nothing stored for the backward pass but the output."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqloom.acceleration import plain_of
from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.models.decoders import stacks
from seqloom.models.decoders.stacks import STACKS, TransformerStack
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders import transformer as encoder
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.language_model import LanguageModel
from seqloom.parts.probe import watch
from seqloom.parts.transformer.reversible import run_reversible
from seqloom.parts.visibility import Visibility
from tests.laws import COMPILED, close, drawn, gradients, mixer_choices, named, shake

SIZES = {"input_dim": 8, "dim": 8, "heads": 2, "hidden": 12, "residual": "reversible"}
LENGTHS = torch.tensor([7, 3, 1])


def made(make=TransformerEncoder, layers=3, dropout=0.0, **options):
    torch.manual_seed(2)
    return shake(make(**{**SIZES, "layers": layers, "dropout": dropout, **options}).double(), 1)


def said(stack, x, lengths):
    y = stack(x, lengths).states if isinstance(stack, TransformerEncoder) else stack(x)[0]
    return y[torch.arange(x.size(1)) < lengths[:, None]]


def plainly(monkeypatch):
    for module in (stacks, encoder):
        monkeypatch.setattr(module, "run_reversible", plain_of(run_reversible))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("make", [TransformerEncoder, TransformerStack])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "relative"])
def test_gradients_are_those_of_the_plain_computation(make, dropout, position, monkeypatch):
    stack, found = made(make, dropout=dropout, position=position).train(), []
    for plain in (False, True):
        if plain:
            plainly(monkeypatch)
        x = drawn(3, 7, 8).requires_grad_()
        torch.manual_seed(5)
        y = said(stack, x, LENGTHS)
        torch.rand(3)  # numbers drawn since then are none of dropout's
        found.append([y, *gradients(stack, [y]), torch.rand(3)])
        grad_x = torch.autograd.grad(said(stack.eval(), x, LENGTHS).pow(2).sum(), x)
        found[-1] += grad_x
        stack.train()
    close(*found)
    assert found[0][0].grad_fn is not None
    assert all(grad.abs().sum() > 0 for grad in found[0][1:])


@pytest.mark.parametrize("mixer", mixer_choices(), ids=named)
def test_every_mixer_can_be_undone(mixer, monkeypatch):
    stack, x, found = made(mixer=mixer, position="none", dropout=0.2).train(), drawn(3, 6, 8), []
    for plain in (False, True):
        if plain:
            plainly(monkeypatch)
        torch.manual_seed(5)
        y = said(stack, x, LENGTHS.clamp(max=6))
        found.append([y, *gradients(stack, [y])])
    close(*found)


def kept(layers, residual, x):
    """Bytes stored for the backward pass, without weights."""
    stack = made(TransformerStack, layers, 0.1, residual=residual).train()
    own, found = {p.untyped_storage().data_ptr() for p in stack.parameters()}, {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = stack(x)[0]
    return sum(found.values()), y


def test_memory_does_not_grow_with_depth():
    x = drawn(4, 30, 8)
    (two, _y), (eight, _z) = (kept(layers, "reversible", x) for layers in (2, 8))
    assert two == eight < 10 * x.nbytes
    (two, _y), (eight, _z) = (kept(layers, "add", x) for layers in (2, 8))
    assert eight > 3 * two


def test_backward_runs_twice_and_frozen_weights_get_no_gradient():
    stack = made(dropout=0.2).train()
    stack.blocks[1].requires_grad_(False)
    trained = [p for p in stack.blocks.parameters() if p.requires_grad]
    y = said(stack, drawn(3, 7, 8), LENGTHS).sum()
    close(torch.autograd.grad(y, trained, retain_graph=True), torch.autograd.grad(y, trained))
    y = said(stack, drawn(3, 7, 8), LENGTHS).sum()
    y.backward()
    assert all((p.grad is not None) == p.requires_grad for p in stack.blocks.parameters())


def test_weights_that_changed_since_are_noticed():
    stack = made()
    y = said(stack, drawn(3, 7, 8), LENGTHS).sum()
    with torch.no_grad():
        stack.blocks[0].feed.up.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_by_hand():
    stack, x, visible = made(layers=1), drawn(2, 5, 8), Visibility(lengths=torch.tensor([5, 5]))
    block, entered = stack.blocks[0], stack.enter(x)
    one = entered + block.mix(block.mix_around.norm(entered), visible, None, stack.enter.position)[0]
    two = entered + block.feed(block.feed_around.norm(one))
    close(stack(x, visible.lengths).states, stack.norm((one + two) / 2))


def test_padding_is_not_seen():
    stack, x = made(), drawn(3, 7, 8)
    other = torch.where(torch.arange(7)[:, None] < LENGTHS[:, None, None], x, 100.0)
    close(said(stack, x, LENGTHS), said(stack, other, LENGTHS))
    close(stack(x, LENGTHS).states[1, :3], stack(x[1:2, :3], LENGTHS[1:2]).states[0])


@pytest.mark.parametrize("mixer", ["attention", "linear", {"kind": "window", "window": 3}], ids=named)
def test_single_steps_are_the_whole(mixer):
    stack, x = made(TransformerStack, mixer=mixer), drawn(2, 9, 8)
    whole = stack(x)[0]
    for pieces in ([1] * 9, [4, 1, 4]):
        state, found = stack.begin(), []
        for piece in x.split(pieces, 1):
            y, state = stack(piece, state)
            found.append(y)
        close(torch.cat(found, 1), whole)


def test_whoever_watches_sees_weights_and_the_same_numbers():
    stack, x = made(), drawn(3, 7, 8)
    with watch(stack) as seen:
        y = said(stack, x, LENGTHS)
    close(y, said(stack, x, LENGTHS))
    close(gradients(stack, [y]), gradients(stack, [said(stack, x, LENGTHS)]))
    assert [[tuple(one.shape) for one in reports] for reports in seen.values()] == [[(3, 2, 7, 7)]] * 3
    heard = []
    with stack.blocks[1].feed.register_forward_hook(lambda *given: heard.append(1)):
        said(stack, x, LENGTHS).sum().backward()
    assert heard == [1]  # not again in the backward pass


def test_language_models_train_eager_and_compiled():
    torch._dynamo.reset()
    x = torch.randint(1, 11, (4, 9), generator=torch.Generator().manual_seed(1))
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        stack = {"kind": "transformer", "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0, "residual": "reversible"}
        language = LanguageModel(11, 0, stack, embedding=6, dropout=0.0).double().train()
        call = torch.compile(language, backend=COMPILED, fullgraph=True) if compiled else language
        optimiser, losses = torch.optim.SGD(language.parameters(), 0.1), []
        for _ in range(3):
            loss = call(x[:, :-1], x[:, 1:]).nats.mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        assert losses[2] < losses[0]
        found.append(torch.stack(losses))
    close(*found)


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
def test_in_half_precision_gradients_are_near_those_in_full(inside):
    stack, x, found = made().float(), drawn(3, 7, 8).float(), []
    for half in (False, True):
        stack.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            total = said(stack, x, LENGTHS).float().pow(2).sum()
            if inside:
                total.backward()
        if not inside:
            total.backward()
        found.append(torch.cat([p.grad.flatten() for p in stack.blocks.parameters()]))
    assert (found[0] - found[1]).norm() < 0.03 * found[0].norm()


def test_what_does_not_fit_is_said():
    for options, message in (
        ({"norm": "after"}, "norm 'after' cannot be undone.* choose norm before; or residual from: add, dense, none"),
        (
            {"norm_kind": "batch"},
            "norm_kind 'batch' would count every batch twice.* from: .*layer.*; or residual from: add",
        ),
        ({"norm_kind": {"kind": "power"}}, "norm_kind 'power' would count every batch twice"),
        ({"residual": "reversibel"}, "unknown residual 'reversibel'; did you mean 'reversible'"),
    ):
        for table in (ENCODERS, STACKS):
            with pytest.raises(SeqloomError, match=message):
                build(table, {"kind": "transformer", "residual": "reversible", **options}, input_dim=8)
    with pytest.raises(SeqloomError, match=r"unknown residual 'reversible'\. Choose from: add, dense, none"):
        TransformerDecoder(**SIZES, memory_dim=8, final_dims=())
    with pytest.raises(SeqloomError, match=r"unknown residual 'reversible'\. Choose from: add, dense, none"):
        build(ENCODERS, {"kind": "convolution", "residual": "reversible"}, input_dim=8)
    assert isinstance(build(ENCODERS, {"kind": "transformer", "residual": "reversible"}, input_dim=8), nn.Module)
