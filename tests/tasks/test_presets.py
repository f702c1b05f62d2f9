"""Models by one word: each is complete, builds, and has the size it always had."""

import copy

import pytest
import torch

from seqloom.build import build, complete
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import MODELS
from seqloom.tasks.presets import SIZES, merge
from seqloom.tasks.presets import preset as preset_of
from seqloom.tasks.translate import presets
from seqloom.tasks.translate.presets import ABOUT, PRESETS, preset, suited

SOURCE, TARGET = 40, 50
# Parameters at size tiny with 40 source and 50 target tokens.
TINY = {
    "rnn": 69_810,
    "gru": 185_010,
    "lstm": 242_610,
    "gru-attention": 250_802,
    "lstm-attention": 226_226,
    "transformer": 937_778,
}


def made(model, size):
    return build(MODELS, {"kind": "seq2seq", **preset(model, size)}, source_size=SOURCE, target_size=TARGET)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", list(PRESETS))
def test_completes_and_builds(model, size):
    whole = complete(MODELS, {"kind": "seq2seq", **preset(model, size)})
    assert complete(MODELS, whole) == whole
    with torch.device("meta" if size == "base" else "cpu"):
        short = made(model, size)
        full = build(MODELS, whole, source_size=SOURCE, target_size=TARGET)
    assert {name: p.shape for name, p in short.named_parameters()} == {n: p.shape for n, p in full.named_parameters()}


@pytest.mark.parametrize("model", list(PRESETS))
def test_size_of_tiny_is_pinned(model):
    assert count(made(model, "tiny")) == TINY[model]


def test_sizes_grow():
    for model in PRESETS:
        with torch.device("meta"):
            sizes = [count(made(model, size)) for size in SIZES]
        assert sizes == sorted(sizes)
        assert len(set(sizes)) == len(SIZES)


def test_transformer_tiny_worked_by_hand():
    """Embeddings of 40 and 50, the second tied to the output, its bias, two stacks, a norm on each."""
    d, h = 128, 512
    attention, norm, feed = 4 * (d * d + d), 2 * d, d * h + h + h * d + d
    encoder, decoder = 2 * (attention + feed + 2 * norm) + norm, 2 * (2 * attention + feed + 3 * norm) + norm
    assert count(made("transformer", "tiny")) == 40 * d + 50 * d + 50 + encoder + decoder


def test_every_preset_is_described():
    assert ABOUT.keys() == PRESETS.keys()


def test_a_preset_is_a_copy():
    before = copy.deepcopy(presets.PRESETS), copy.deepcopy(presets.TRANSFORMER_SIZES)
    for model in PRESETS:
        config = preset(model, "tiny")
        config["encoder"]["dim"] = -1
        config["decoder"]["dim"] = -1
    assert before == (presets.PRESETS, presets.TRANSFORMER_SIZES)
    assert preset("transformer", "tiny")["encoder"] is not preset("transformer", "tiny")["decoder"]


def test_unknown_names_are_guessed():
    with pytest.raises(SeqloomError, match="unknown model 'transfomer'; did you mean 'transformer'"):
        preset_of("translate", "transfomer", "tiny")
    with pytest.raises(SeqloomError, match="unknown size 'bas'; did you mean 'base'"):
        preset_of("translate", "lstm", "bas")


def test_training_that_suits():
    for model in PRESETS:
        assert (
            suited(preset(model, "tiny")) == presets.TRAINING["transformer" if model == "transformer" else "recurrent"]
        )
    assert suited({"decoder": "transformer"})["label_smoothing"] == 0.1
    suited({"decoder": "transformer"})["label_smoothing"] = 9
    assert suited({"decoder": "transformer"})["label_smoothing"] == 0.1


def test_merge_joins_nested_settings_and_changes_neither():
    one, other = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 5}, "d": {"e": 6}}
    assert merge(one, other) == {"a": {"b": 1, "c": 5}, "d": {"e": 6}}
    assert one == {"a": {"b": 1, "c": 2}, "d": 3}
    merge(one, other)["d"]["e"] = 7
    assert other == {"a": {"c": 5}, "d": {"e": 6}}
