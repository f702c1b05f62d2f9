"""How far a place sees, measured; steps of the causal ones; and that they train."""

import pytest
import torch
from torch import nn

from seqloom.build import build, complete
from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.errors import SeqloomError
from seqloom.models.decoders.stacks import STACKS
from seqloom.models.encoders import ENCODERS
from seqloom.models.language_model import LanguageModel
from seqloom.parts.transformer.residual import RESIDUALS
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import COMPILED, close, drawn, shake, source_rows, tiny_model

NEAR = ("convolution", "window", "single")  # what sees its neighbours alone
LONG = 41
FIELDS = [  # options, how many places one sees: 1 + (width − 1) Σ dilation
    ({"layers": 1, "width": 3}, 3),
    ({"layers": 4, "width": 3}, 9),
    ({"layers": 3, "width": 5}, 13),
    ({"layers": 4, "width": 1}, 1),
    ({"layers": 4, "width": 2, "dilation": 2}, 16),
    ({"layers": 3, "width": 3, "dilation": 3}, 27),
]


def made(table, choice):
    torch.manual_seed(0)
    return shake(build(table, choice, input_dim=5).double(), 1)


def seen(model, read, at):
    """The places whose input moves what is said at `at`, by the gradient."""
    x = drawn(1, LONG, 5).requires_grad_()
    (slope,) = torch.autograd.grad(read(model, x)[0, at].square().sum(), [x])
    return slope[0].abs().sum(-1).nonzero().flatten().tolist()


def encode(model, x):
    return model(x, None).states


def follow(model, x):
    return model(x)[0]


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize(("options", "field"), FIELDS)
def test_the_field_is_what_gradients_say(options, field, residual):
    """In the middle of a row, where no end is near: the field, and nothing else; around the place, or up to it."""
    choice = {"kind": "convolution", "dim": 8, "residual": residual, **options}
    encoder, stack = made(ENCODERS, choice), made(STACKS, choice)
    assert encoder.field == stack.field == field
    before = sum(reach - reach // 2 for reach in (layer.mix.reach for layer in encoder.convolutions.layers))
    assert seen(encoder, encode, 20) == list(range(20 - before, 20 - before + field))
    assert seen(stack, follow, 30) == list(range(30 - field + 1, 31))


@pytest.mark.parametrize(("kind", "field"), [("window", 5), ("single", 1)])
def test_windows_and_single_places(kind, field):
    encoder, stack = (made(table, {"kind": kind, "dim": 8}) for table in (ENCODERS, STACKS))
    assert encoder.field == stack.field == field
    assert seen(encoder, encode, 20) == list(range(20 - field // 2, 21 + field // 2))
    assert seen(stack, follow, 20) == list(range(21 - field, 21))


def test_a_window_of_the_past_by_hand():
    """One hidden layer over the last five vectors side by side: Bengio et al. 2003."""
    stack = made(STACKS, {"kind": "window", "dim": 5})
    x, part = drawn(2, 7, 5), stack.convolutions.layers[0].mix.weigh
    side = torch.cat([torch.zeros(2, 4, 5).double(), x], 1).unfold(1, 5, 1).flatten(2)
    close(stack(x)[0], (side @ part.weight.flatten(1).T + part.bias).tanh())


@pytest.mark.parametrize("mixer", ["convolution", {"kind": "convolution", "width": 4, "gate": True}])
def test_a_transformer_of_convolutions_sees_as_far(mixer):
    choice = {"kind": "transformer", "dim": 8, "heads": 2, "hidden": 12, "layers": 3, "mixer": mixer}
    reach = 3 * ((mixer["width"] if isinstance(mixer, dict) else 3) - 1)
    assert seen(made(STACKS, {**choice, "position": "none"}), follow, 30) == list(range(30 - reach, 31))
    assert len(seen(made(ENCODERS, choice), encode, 20)) == reach + 1


def model(kind, **options) -> LanguageModel:
    torch.manual_seed(0)
    made = {"kind": kind, "dim": 8, "dropout": 0.0, **options}
    return LanguageModel(11, 0, made, embedding=6, dropout=0.0, state_reset=0.5)


@pytest.mark.parametrize(
    "options", [{}, {"layers": 3, "dilation": 2}, {"residual": "dense", "norm_kind": "batch"}], ids=str
)
def test_one_step_at_a_time_is_all_at_once(options):
    """From any state, that of half the row too; the state holds the last places and no more."""
    stack, x = made(STACKS, {"kind": "convolution", "dim": 8, "layers": 2, **options}), drawn(3, 20, 5)
    whole, _ = stack(x)
    for pieces in ([1] * 20, [7, 13], [2, 1, 17]):
        state, found = stack.begin(), []
        for piece in x.split(pieces, 1):
            y, state = stack(piece, state)
            found.append(y)
        close(torch.cat(found, 1), whole)
    assert [part.size(1) for part in state] == [layer.mix.reach for layer in stack.convolutions.layers]


def test_streams_go_on_and_some_rows_begin_afresh():
    language = model("convolution").double().train()
    x = torch.randint(0, 11, (64, 9), generator=torch.Generator().manual_seed(1))
    state = language(x[:, :4], x[:, 1:5]).state
    torch.manual_seed(3)
    mixed = language(x[:, 4:8], x[:, 5:], None, state).nats.view(64, -1)
    going = language.eval()(x[:, 4:8], x[:, 5:], None, state).nats.view(64, -1)
    fresh = language(x[:, 4:8], x[:, 5:]).nats.view(64, -1)
    went, began = ((mixed - other).abs().amax(1) < 1e-9 for other in (going, fresh))
    assert (went | began).all()
    assert went.any()
    assert began.any()
    close(language(x[:, :8], x[:, 1:]).nats.view(64, -1)[:, 4:], going)


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("kind", NEAR)
def test_language_models_train_eager_and_compiled(kind, residual):
    torch._dynamo.reset()
    options = {"residual": residual, "norm_kind": "layer", "layers": 2} if kind == "convolution" else {}
    x = torch.randint(1, 11, (4, 9), generator=torch.Generator().manual_seed(1))
    found = []
    for compiled in (False, True):
        language = model(kind, **options).double().train()
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


@pytest.mark.parametrize("kind", NEAR)
def test_in_half_precision(kind):
    language = model(kind).bfloat16()
    nats = language(torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)).nats
    assert nats.isfinite().all()


@pytest.mark.parametrize("residual", RESIDUALS)
def test_translation_trains_with_each_way_around(residual):
    torch.manual_seed(0)
    sides = ({"kind": "convolution", "residual": residual}, {"kind": "transformer", "residual": residual, "layers": 2})
    tiny, batch = tiny_model(*sides), Batch.of(source_rows(), pad([[BOS, 4, 5, EOS], [BOS, 7, EOS], [BOS, 8, 4, EOS]]))
    optimiser, losses = torch.optim.Adam(tiny.parameters(), 1e-2), []
    for _ in range(3):
        loss = TeacherForcing(tiny.train())(batch)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item())
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in tiny.encoder.parameters())
    assert sum(isinstance(part, nn.Linear) for part in tiny.encoder.modules()) == 1 + 2 * (residual == "dense")


def test_what_is_wrong_is_said():
    for options, message in (
        ({"activation": "gat"}, "unknown activation 'gat'; did you mean 'gate'"),
        ({"residual": "ad"}, "unknown residual 'ad'; did you mean 'add'"),
        ({"norm_kind": "bach"}, "unknown kind 'bach'; did you mean 'batch'"),
        ({"width": 0}, "width of a convolution is at least 1, here 0"),
    ):
        with pytest.raises(SeqloomError, match=message):
            build(ENCODERS, {"kind": "convolution", **options}, input_dim=5)
    with pytest.raises(SeqloomError, match="layers of ConvolutionEncoder is at least 1, here 0"):
        complete(ENCODERS, {"kind": "convolution", "layers": 0})
