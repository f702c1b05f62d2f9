"""Which layers of the encoder a decoder's layers read, and the tokens that see everything."""

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.models.encoders.layer_views import Views
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.protocols import Encoded
from seqloom.parts.positions.position_table import POSITIONS
from tests import laws
from tests.laws import LENGTHS, close, drawn, shake, source_rows, tiny_model

STATES = [drawn(2, 5, 4, seed=seed) for seed in range(4)]
ENCODED = Encoded(states=STATES[3], lengths=None, summary=drawn(2, 4), layers=(*STATES[:3],))
TRANSFORMER = {"kind": "transformer"}


def norm(x):
    return torch.nn.functional.layer_norm(x, (4,))


@pytest.mark.parametrize(
    ("readers", "wanted"),
    [(3, [0, 1, 2]), (2, [1, 2]), (1, [2]), (5, [0, 0, 0, 1, 2])],
)
def test_each_reads_its_own_counted_from_the_top(readers, wanted):
    """The top is what the encoder says at last, after its own norm; the others are normed here."""
    found = Views("each", (4, 4, 4), readers).double()(ENCODED).views
    close(found, [STATES[3] if layer == 2 else norm(STATES[layer]) for layer in wanted])


def test_all_are_mixed_by_weights_of_each_layer():
    views = Views("all", (4, 4, 4), 2).double()
    layers = [norm(STATES[0]), norm(STATES[1]), STATES[3]]
    close(views(ENCODED).views, [sum(layers) / 3] * 2)
    views.weight.data = torch.tensor([[0.0, 0.0, -1e9], [1.0, 0.0, 2.0]]).double()
    share = views.weight[1].softmax(0)
    mixed = sum(w * layer for w, layer in zip(share, layers, strict=True))
    close(views(ENCODED).views, [(layers[0] + layers[1]) / 2, mixed])


@pytest.mark.parametrize("views", ["each", "all"])
@pytest.mark.parametrize("encoder", ["transformer", "lstm"])
def test_a_model_with_views_trains_and_steps_as_it_was_trained(encoder, views):
    """Every layer that is read gets a gradient through its norm, and decoding says what teacher forcing says."""
    torch.manual_seed(0)
    model = shake(tiny_model(encoder, {**TRANSFORMER, "layers": 3}, views=views).double(), 1)
    source, tokens = source_rows(), torch.tensor([[1, 4, 5], [1, 6, 7], [1, 3, 3]])
    whole = model(source, tokens)
    slopes = torch.autograd.grad(whole.square().sum(), list(model.views.parameters()), allow_unused=True)
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)
    with torch.no_grad():
        state, said = model.start(source, room=3), []
        for t in range(3):
            y, state = model.step(tokens[:, t : t + 1], state)
            said.append(y)
    close(torch.cat(said, 1), whole)


def test_views_obey_the_laws_of_models():
    def make(seed=0, dtype=torch.float64, device="cpu"):
        decoder = {**TRANSFORMER, "layers": 3}
        module = laws.make_module(lambda: tiny_model("transformer", decoder, views="all"), seed, dtype, device)
        source, generator = source_rows(device), torch.Generator()

        def draw(r, t):
            return torch.randint(9, (r, t), generator=generator.manual_seed(8)).to(device)

        return laws.Stepping(
            module, lambda width, room: module.start(source, width=width, room=room), module.step, draw
        )

    for law in (laws.prefix, laws.causality, laws.picking, laws.twin, laws.reporting, laws.dtypes):
        law(make)


def test_views_that_cannot_be_are_refused():
    with pytest.raises(SeqloomError, match="did you mean 'each'"):
        tiny_model("transformer", TRANSFORMER, views="eahc")
    with pytest.raises(SeqloomError, match=r"needs a decoder of which each layer reads: decoder\.kind=transformer"):
        tiny_model("transformer", "attentive", views="each")
    with pytest.raises(SeqloomError, match="needs layers of the encoder of one width, here 8, 16"):
        tiny_model({"kind": "lstm", "dim": [4, 8], "layers": 2}, TRANSFORMER, views="all")


def test_without_views_nothing_is_added():
    plain = tiny_model("transformer", TRANSFORMER)
    assert plain.views is None
    assert not any("views" in name for name in plain.state_dict())


def with_globals(number, **options):
    torch.manual_seed(0)
    sizes = {"dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}
    return TransformerEncoder(8, **sizes, global_tokens=number, **options).double()


@pytest.mark.parametrize("position", list(POSITIONS))
def test_global_tokens_obey_the_laws(position):
    def make(seed=0, dtype=torch.float64, device="cpu"):
        module = laws.make_module(lambda: with_globals(2, position=position), seed, dtype, device)

        def read(x, lengths):
            encoded = module(x, lengths)
            return [encoded.states, *encoded.layers], [encoded.summary]

        return laws.Reading(module, read, *laws.rows(8, dtype, device))

    for law in (laws.padding, laws.twin, laws.reporting, laws.dtypes):
        law(make)


def test_global_tokens_are_tokens_before_the_others_that_nobody_is_told_of():
    encoder, x = shake(with_globals(2, position="none"), 1), drawn(3, 6, 8)
    plain = with_globals(0, position="none")
    plain.load_state_dict({name: part for name, part in encoder.state_dict().items() if name != "globals"})
    longer = torch.cat([encoder.globals.expand(3, -1, -1) / plain.enter.scale, x], 1)
    found = encoder(x, torch.tensor(LENGTHS))
    wanted = plain(longer, torch.tensor(LENGTHS) + 2)
    close([found.states, *found.layers], [part[:, 2:] for part in (wanted.states, *wanted.layers)])
    with pytest.raises(SeqloomError, match="global_tokens of TransformerEncoder is at least 0, here -1"):
        with_globals(-1)
