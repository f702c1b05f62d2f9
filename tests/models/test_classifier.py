"""Every encoder with every summary obeys the laws; the baselines are what their textbooks say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.build import build, complete
from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import EOS, PAD
from seqloom.errors import SeqloomError
from seqloom.models.classifier import CLASSIFIERS, Classifier
from seqloom.models.encoders import ENCODERS
from seqloom.parts.layers.pooling import POOLINGS
from seqloom.parts.probe import watch
from seqloom.tasks.presets import SIZES, about, preset, suited
from tests import laws

ROWS = [[5, 6, 7, EOS], [8, EOS], [4, 5, 6, 7, 8, 4, 5, EOS]]
FEW = {"ngrams": 3, "buckets": 100}
ONE_WAY = {"kind": "gru", "directions": 1}


def made(encoder: Any, summary: Any) -> Classifier:
    return Classifier(9, 3, laws.small(ENCODERS, encoder, dim=4), summary, embedding=5, hidden=6, dropout=0.0)


def maker(encoder: Any, summary: Any) -> laws.Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> laws.Reading:
        module = laws.make_module(lambda: made(encoder, summary), seed, dtype, device)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            encoded = module.encoder(*module.summary.prepare(x, lengths))
            return [], [module.head(module.summary(encoded.states, encoded.lengths))]

        return laws.Reading(module, read, *laws.rows(5, dtype, device))

    return make


# A token for the class sees nothing of the others where every place is alone.
PAIRS = [(name, summary) for name in ENCODERS for summary in POOLINGS if (name, summary) != ("single", "class")]
PAIRS += [(ONE_WAY, summary) for summary in POOLINGS if summary != "both"]
ALL = [pytest.param(maker(*pair), id=f"{laws.named(pair[0])} {pair[1]}") for pair in PAIRS]
LEAN = [one for one in ALL if "lstm" in str(one.id) or "transformer" in str(one.id)]


@pytest.mark.parametrize("make", ALL)
def test_padding(make):
    laws.padding(make)


@pytest.mark.parametrize("make", LEAN)
def test_twin_reports_and_dtypes(make):
    laws.twin(make)
    laws.reporting(make)
    laws.dtypes(make)


@pytest.mark.parametrize("make", LEAN)
def test_devices(make):
    laws.devices(make)


@pytest.mark.parametrize("make", ALL)
def test_saving(make):
    laws.saving(make)


@pytest.mark.parametrize("make", [one for one in ALL if str(one.id).startswith(("rnn", "transformer"))])
def test_slopes(make):
    laws.gradient_check(make, fast=True)


@pytest.mark.parametrize("kind", [*CLASSIFIERS, {"kind": "bag", **FEW}, {"kind": "classifier", **FEW}])
def test_a_text_gets_the_same_answer_in_any_batch(kind):
    """Alone, among others, and whatever stands in padded places."""
    torch.manual_seed(1)
    sizes = {"source_size": 9, "label_count": 2}
    model = laws.shake(build(CLASSIFIERS, kind, **sizes).double(), 3)
    together = model(pad(ROWS))
    laws.close(model(pad(ROWS, value=7)), together)
    for number, row in enumerate(ROWS):
        laws.close(model(pad([row]))[0], together[number])
    assert together.shape == (3, 2)


def test_logistic_regression_has_161_parameters_on_top_of_its_embeddings():
    model = build(CLASSIFIERS, preset("classify", "logistic", "tiny"), source_size=50, label_count=2)
    assert sum(p.numel() for p in model.head.parameters()) == 161
    logits = model(pad(ROWS))
    z = logits[:, 1]
    torch.testing.assert_close(logits.softmax(-1)[:, 1], torch.sigmoid(z))
    with pytest.raises(SeqloomError, match="tells two labels apart, here 3; choose softmax"):
        build(CLASSIFIERS, "logistic", source_size=50, label_count=3)


def test_long_texts_are_cut_and_short_ones_end_in_zeros():
    model = build(CLASSIFIERS, {"kind": "softmax", "length": 3, "embedding": 2}, source_size=9, label_count=2)
    weight, bias = model.head.layers[0].weight, model.head.layers[0].bias
    e = model.source.weight
    torch.testing.assert_close(model(pad([[5, EOS]]))[0], weight[:, :2] @ e[5] + bias)
    cut = torch.cat([e[4], e[5], e[6]])
    torch.testing.assert_close(model(pad([[4, 5, 6, 7, EOS]]))[0], weight @ cut + bias)


def test_layers_without_an_activation_are_one_matrix_product():
    choice = {"kind": "mlp", "hidden": [16, 8], "activation": "none", "length": 3, "embedding": 2}
    model = build(CLASSIFIERS, choice, source_size=9, label_count=3).double()
    first, second, third = model.head.layers
    matrix = third.weight @ second.weight @ first.weight
    bias = third.weight @ (second.weight @ first.bias + second.bias) + third.bias
    x = torch.randn(7, 6, dtype=torch.float64)
    torch.testing.assert_close(model.head(x), x @ matrix.T + bias)
    curved = build(CLASSIFIERS, {**choice, "activation": "tanh"}, source_size=9, label_count=3).double()
    curved.load_state_dict(model.state_dict())
    assert not torch.allclose(curved.head(x), model.head(x))


def test_a_bag_knows_no_order_and_an_rnn_does():
    bag = build(CLASSIFIERS, "bag", source_size=9, label_count=3)
    pairs = laws.shake(build(CLASSIFIERS, {"kind": "bag", **FEW}, source_size=9, label_count=3), 1)
    rnn = made("rnn", "both")
    one, other = pad([[5, 6, 7, EOS]]), pad([[7, 5, 6, EOS]])
    torch.testing.assert_close(bag(one), bag(other))
    for model in (pairs, rnn):
        assert not torch.allclose(model(one), model(other))


def test_both_takes_each_direction_where_it_has_read_all():
    model = made("gru", "both").double()
    source = pad(ROWS)
    encoded = model.encoder(model.source(source.tokens), source.lengths)
    torch.testing.assert_close(model.summary(encoded.states, encoded.lengths), encoded.summary)
    with pytest.raises(SeqloomError, match="'both' reads two directions, the encoder has one; choose 'last'"):
        made(ONE_WAY, "both")


def test_a_class_token_at_the_end_is_read_by_the_forward_direction():
    """In a one-way RNN it must see the whole text: changing any token changes what it says."""
    model = made(ONE_WAY, "class").double()
    before = model(pad([[5, 6, 7, EOS], [5, 6, EOS, PAD]]))
    assert not torch.allclose(model(pad([[8, 6, 7, EOS]]))[0], before[0])
    entered, lengths = model.summary.prepare(torch.zeros(2, 4, 5).double(), torch.tensor([4, 2]))
    assert lengths is not None
    assert lengths.tolist() == [6, 4]
    token = model.summary.token
    for row, last in ((0, 5), (1, 3)):
        torch.testing.assert_close(entered[row, 0], token)
        torch.testing.assert_close(entered[row, last], token)
        assert entered[row, 1:last].eq(0).all()


def test_attention_pooling_worked_by_hand():
    model = made("gru", "attention").double()
    pool = model.summary
    states, lengths = torch.randn(2, 4, 8, dtype=torch.float64), torch.tensor([4, 2])
    with watch(pool) as seen:
        got = pool(states, lengths)
    for row, length in enumerate(lengths.tolist()):
        h = states[row, :length]
        u = torch.tanh(h @ pool.project.weight.T + pool.project.bias)
        alpha = torch.softmax(u @ pool.query, 0)
        torch.testing.assert_close(got[row], (alpha[:, None] * h).sum(0))
        torch.testing.assert_close(seen[""][0][row, 0, :length], alpha)
    assert seen[""][0].shape == (2, 1, 4)
    assert seen[""][0][1, 0, 2:].eq(0).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", list(about("classify")))
def test_presets_complete_and_build(name, size):
    config = {"kind": "classifier", **preset("classify", name, size)}
    whole = complete(CLASSIFIERS, config)
    assert complete(CLASSIFIERS, whole) == whole
    with torch.device("meta"):
        build(CLASSIFIERS, whole, source_size=40, label_count=2)
    assert suited("classify", config)["learning_rate"] > 0
