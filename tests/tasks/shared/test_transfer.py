"""Handing over: what a run of another task begins with, and what stays new."""

from __future__ import annotations

import pytest
import torch

from seqloom.build import build, complete
from seqloom.data.files.columns import ReadOptions
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.documents import read_json, read_yaml
from seqloom.errors import SeqloomError
from seqloom.models.pretraining.masked_language_model import MODELS, MaskedLanguageModel
from seqloom.tasks.mask.task import MaskOptions
from seqloom.tasks.shared.transfer import copy_shared_weights, transfer_settings
from seqloom.training.checkpoint import read_tensors, weights
from tests.tasks.standin import StandinTask


@pytest.fixture
def base():
    """The config, vocabularies and weights of a masked model."""
    codec = Codec.build("words", ["the cat sat", "the dog ran"], fold=True, max_vocab=9)
    small = {"kind": "gru", "dim": 6}
    model = complete(MODELS, {"kind": "masked", "embedding": 10, "encoder": small})
    data = {
        "tokens": "words",
        "lowercase": "casefold",
        "half_width": False,
        "max_vocab": 9,
        "min_count": 1,
        "max_length": 128,
    }
    config = {"task": "mask", "data": {**data, "masked": 0.15}, "model": model}
    torch.manual_seed(1)
    return config, {"source": codec.to_json()}, weights(MaskedLanguageModel(codec.size, small, embedding=10))


def start(base, kind=None):
    """A model as the driver would build it from what is handed over."""
    config, vocabularies, tensors = base
    task = StandinTask()
    taken = transfer_settings("runs/base", config, vocabularies, task, kind)
    codec = Codec.from_json(taken.vocabularies["source"])
    chosen = {"kind": kind or task.kind, **taken.model}
    return taken, build(task.models, complete(task.models, chosen), source_size=codec.size, label_count=3), tensors


def test_a_masked_model_hands_over_its_embedding_and_encoder_whole(base):
    taken, model, tensors = start(base)
    assert taken.data == {
        "tokens": "words",
        "lowercase": "casefold",
        "half_width": False,
        "max_vocab": 9,
        "min_count": 1,
    }
    assert taken.vocabularies == base[1]
    assert set(taken.model) == {"embedding", "encoder"}
    head = model.head.weight.detach().clone()
    names, new = copy_shared_weights(model, tensors, "runs/base")
    assert new == ["head.bias", "head.weight"]
    assert {name.split(".")[0] for name in names} == {"source", "encoder"}
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, head if name == "head.weight" else tensors.get(name, parameter))
    assert torch.equal(model.source.weight, tensors["source.weight"])


def test_what_is_handed_over_fits_the_options_of_the_task(base):
    StandinTask.options(**transfer_settings("x", base[0], base[1], StandinTask()).data)
    MaskOptions(**transfer_settings("x", base[0], base[1], StandinTask()).data)


def test_a_model_without_an_encoder_takes_the_embedding_alone(base):
    taken, model, tensors = start(base, "bag")
    assert taken.model == {"embedding": 10}
    names, _ = copy_shared_weights(model, tensors, "runs/base")
    assert names == ["source.weight"]


def test_vectors_without_an_encoder_leave_the_encoder_new(base):
    config, vocabularies, tensors = base
    config = {**config, "task": "vectors", "model": {"kind": "skipgram", "embedding": 10}}
    taken = transfer_settings("v", config, vocabularies, StandinTask())
    assert taken.model == {"embedding": 10}
    _, model, _ = start((config, vocabularies, tensors))
    names, new = copy_shared_weights(
        model, {"source.weight": tensors["source.weight"], "context.weight": torch.ones(2)}, "v"
    )
    assert names == ["source.weight"]
    assert "encoder.recurrent" in " ".join(new)


def test_a_translator_hands_over_its_source_side(run):
    config, tensors = read_yaml(run / "config.yaml"), read_tensors(run / "model.safetensors")
    vocabularies = {side: read_json(run / f"{side}.json") for side in ("source", "target")}
    taken, model, _ = start((config, vocabularies, tensors))
    assert taken.data["tokens"] == "chars"
    assert list(taken.vocabularies) == ["source"]
    names, new = copy_shared_weights(model, tensors, run)
    assert new == ["head.bias", "head.weight"]
    assert all(torch.equal(model.get_parameter(name), tensors[name]) for name in names)


def test_a_stack_that_reads_from_left_to_right_becomes_an_encoder_of_one_direction(base):
    """Keywords that only a language model has stay behind."""
    config, vocabularies, _ = base
    stack = {
        "kind": "recurrent",
        "cell": {"kind": "gru"},
        "dim": 6,
        "layers": 1,
        "weight_drop": 0.5,
        "locked_dropout": True,
    }
    config = {**config, "task": "generate", "model": {"embedding": 10, "encoder": stack}}
    taken = transfer_settings("runs/base", config, vocabularies, StandinTask())
    assert taken.model["encoder"]["directions"] == 1
    assert taken.model["encoder"]["weight_drop"] == 0.5
    assert "locked_dropout" not in taken.model["encoder"]
    complete(StandinTask.models, {"kind": "standin", **taken.model})


def test_a_task_that_reads_words_takes_over_words_alone(base):
    config, vocabularies, _ = base

    class Tagger(StandinTask):
        name = "tag"
        options = ReadOptions

    assert transfer_settings("runs/base", config, vocabularies, Tagger()).data == {}
    config = {**config, "data": {**config["data"], "tokens": "chars"}}
    with pytest.raises(SeqloomError, match="a mask run reads chars, and tag reads words"):
        transfer_settings("runs/base", config, vocabularies, Tagger())


def test_what_would_widen_the_encoders_input_is_left_out(base):
    config, vocabularies, _ = base
    assert transfer_settings("runs/base", config, vocabularies, StandinTask(), "spelling").model["characters"] == {
        "kind": "none"
    }


def test_what_does_not_fit_is_said_in_one_line(base):
    config, vocabularies, tensors = base
    with pytest.raises(SeqloomError, match=r"^t: a classify run has no embedding of text to hand over"):
        transfer_settings(
            "t", {**config, "task": "classify", "model": {"kind": "table"}}, {"labels": {}}, StandinTask()
        )
    with pytest.raises(SeqloomError, match=r"classify with this model does not: --from does not go with it"):
        transfer_settings("runs/base", config, vocabularies, StandinTask(), "table")
    _, model, _ = start(base)
    wider = tensors | {"source.weight": torch.zeros(20, 10)}
    with pytest.raises(SeqloomError, match=r"source\.weight is \(20, 10\) there and \(9, 10\) here"):
        copy_shared_weights(model, wider, "runs/base")
    with pytest.raises(SeqloomError, match=r"encoder\.more is in one model only"):
        copy_shared_weights(model, tensors | {"encoder.more": torch.zeros(1)}, "runs/base")
    with pytest.raises(SeqloomError, match="no weights under the names source or encoder"):
        copy_shared_weights(model, {"head.weight": torch.zeros(1)}, "runs/base")
    odd = {**config, "model": {**config["model"], "encoder": {"kind": "mamba"}}}
    with pytest.raises(SeqloomError, match="unknown encoder of classify, brought by --from runs/base: 'mamba'"):
        transfer_settings("runs/base", odd, vocabularies, StandinTask())


def test_nothing_is_changed_if_something_does_not_fit(base):
    _, model, tensors = start(base)
    before = weights(model)
    before = {name: tensor.clone() for name, tensor in before.items()}
    with pytest.raises(SeqloomError):
        copy_shared_weights(model, tensors | {"source.weight": torch.zeros(20, 10)}, "runs/base")
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(model).items())


def test_a_tagger_that_spells_its_words_says_what_would_help(base):
    config, vocabularies, _ = base
    spelling = {**config, "task": "tag", "model": {**config["model"], "characters": {"kind": "recurrent"}}}
    with pytest.raises(SeqloomError, match=r"a tag run whose encoder reads characters .* --set characters=none"):
        transfer_settings("runs/base", spelling, vocabularies, StandinTask())
    assert transfer_settings("runs/base", spelling, vocabularies, StandinTask(), "bag").model == {"embedding": 10}
    spelling["model"]["characters"] = {"kind": "none"}
    assert "encoder" in transfer_settings("runs/base", spelling, vocabularies, StandinTask()).model
