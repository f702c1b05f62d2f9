"""Choosing parts by name."""

from typing import Annotated

import pytest

from seqloom.build import Choice, build, complete, nested_tables, set_by_path, settings
from seqloom.errors import SeqloomError
from seqloom.models.classifier import CLASSIFIERS
from seqloom.models.decoders import DECODERS
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders.characters import CHARACTER_ENCODERS
from seqloom.models.seq2seq import MODELS
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.recurrent.cells import CELLS, GruCell


class Small:
    def __init__(self, size: int, colour: str = "red") -> None:
        self.size, self.colour = size, colour


INNER = {"small": Small}


class Large:
    def __init__(self, size: int, inner: Annotated[Choice, INNER] = "small", count: int = 2) -> None:
        self.inner = build(INNER, inner, size=size)
        self.size, self.count = size, count


TABLE = {"large": Large, "huge": {"kind": "large", "count": 9}, "blue": {"kind": "huge", "inner": {"kind": "small"}}}


def test_build_by_name():
    assert build(TABLE, "large", size=3).count == 2


def test_build_with_keywords_and_a_nested_choice():
    built = build(TABLE, {"kind": "large", "count": 5, "inner": {"kind": "small", "colour": "green"}}, size=3)
    assert (built.count, built.inner.colour, built.inner.size) == (5, "green", 3)


def test_an_alias_sets_keywords_that_the_user_may_set_again():
    assert build(TABLE, "huge", size=1).count == 9
    assert build(TABLE, {"kind": "huge", "count": 1}, size=1).count == 1
    assert build(TABLE, "blue", size=1).count == 9  # an alias of an alias


def test_settings_without_a_kind_are_those_of_the_usual_one():
    """Of an alias's choice or of the default, which is what `--set encoder.cell.norm=true` says."""
    for kind in ("large", "huge", "blue"):
        choice = {"kind": kind, "inner": {"colour": "green"}}
        assert build(TABLE, choice, size=1).inner.colour == "green"
        assert complete(TABLE, choice)["inner"] == {"kind": "small", "colour": "green"}
    encoder = complete(ENCODERS, {"kind": "rnn", "cell": {"activation": "none"}})
    assert (encoder["cell"]["kind"], encoder["cell"]["activation"]) == ("rnn", "none")
    with pytest.raises(SeqloomError, match="unknown setting of GruCell 'activation'"):
        complete(ENCODERS, {"kind": "gru", "cell": {"activation": "none"}})


def test_build_changes_neither_table_nor_choice():
    choice = {"kind": "huge", "count": 1}
    build(TABLE, choice, size=1)
    assert choice == {"kind": "huge", "count": 1}
    assert TABLE["huge"] == {"kind": "large", "count": 9}


def test_a_class_of_ones_own_stands_where_a_name_is_expected():
    class Own:
        def __init__(self, size):
            self.size = size

    assert isinstance(build(TABLE, Own, size=4), Own)
    assert isinstance(build(TABLE, {"kind": "large", "inner": Own}, size=4).inner, Own)


def test_did_you_mean():
    with pytest.raises(
        SeqloomError, match=r"unknown kind 'larg'; did you mean 'large'\? Choose from: blue, huge, large"
    ):
        build(TABLE, "larg", size=1)
    with pytest.raises(SeqloomError, match=r"unknown setting of Large 'cuont'; did you mean 'count'\?"):
        build(TABLE, {"kind": "large", "cuont": 1}, size=1)
    with pytest.raises(SeqloomError, match=r"unknown kind 'xyz'\. Choose from"):
        build(TABLE, "xyz", size=1)


def test_a_nested_mistake_is_found_by_complete_too():
    with pytest.raises(SeqloomError, match=r"unknown setting of Small 'color'; did you mean 'colour'\?"):
        complete(TABLE, {"kind": "large", "inner": {"kind": "small", "color": "x"}})


def test_sizes_are_not_the_users_to_set():
    with pytest.raises(SeqloomError, match="unknown setting of Large 'size'"):
        build(TABLE, {"kind": "large", "size": 7}, size=1)


def test_a_choice_without_a_kind():
    with pytest.raises(SeqloomError, match="a choice needs its kind, one of: blue, huge, large"):
        build(TABLE, {"count": 3}, size=1)


def test_complete_writes_every_default_out_and_names_the_real_kind():
    assert complete(TABLE, "large") == {"kind": "large", "inner": {"kind": "small", "colour": "red"}, "count": 2}
    assert complete(TABLE, "huge") == {"kind": "large", "inner": {"kind": "small", "colour": "red"}, "count": 9}


def test_complete_of_a_class_of_ones_own():
    with pytest.raises(SeqloomError, match="a class of your own"):
        complete(TABLE, {"kind": "large", "inner": Small})


@pytest.mark.parametrize("table", [CELLS, SCORES, POSITIONS, ACTIVATIONS, ENCODERS, DECODERS, MODELS])
def test_complete_is_its_own_completion(table):
    for name in table:
        once = complete(table, name)
        assert complete(table, once) == once
        assert not any(callable(value) for value in once.values())


def test_settings_come_from_the_signature():
    assert settings(Large) == {"inner": "small", "count": 2}
    assert settings(GruCell) == {"reset_gate": "after", "norm": False, "zoneout": 0.0}
    assert nested_tables(Large) == {"inner": INNER}
    assert nested_tables(MODELS["seq2seq"]) == {"encoder": ENCODERS, "decoder": DECODERS}


def test_change():
    config = {"model": {"encoder": "lstm", "decoder": {"kind": "attentive", "dim": 3}, "dropout": 0.1}}
    set_by_path(config, "model.dropout", 0.2)
    set_by_path(config, "model.encoder.layers", 2)  # a bare name opens
    set_by_path(config, "model.decoder.score.hidden", 7)  # what is not there is made
    set_by_path(config, "training.learning_rate", 1.0)
    assert config == {
        "model": {
            "encoder": {"kind": "lstm", "layers": 2},
            "decoder": {"kind": "attentive", "dim": 3, "score": {"hidden": 7}},
            "dropout": 0.2,
        },
        "training": {"learning_rate": 1.0},
    }
    set_by_path(config, "model.decoder", "recurrent")  # another kind keeps its width and depth, and nothing else
    assert config["model"]["decoder"] == {"kind": "recurrent", "dim": 3}
    spelt = {"characters": {"kind": "recurrent", "dim": 32}}
    set_by_path(spelt, "characters", "none")  # which has no width to keep
    assert spelt == {"characters": {"kind": "none"}}
    set_by_path(config, "model.decoder.kind", "transformer")
    assert config["model"]["decoder"] == {"kind": "transformer", "dim": 3}


@pytest.mark.parametrize(
    ("table", "choice", "message"),
    [
        (CLASSIFIERS, {"kind": "mlp", "hidden": [8, -3]}, r"hidden of Mlp is at least 0, here \[8, -3\]"),
        (CLASSIFIERS, {"kind": "classifier", "hidden": -1}, "hidden of Classifier is at least 0, here -1"),
        (CLASSIFIERS, {"kind": "logistic", "length": 0}, "length of Logistic is at least 1, here 0"),
        (CLASSIFIERS, {"kind": "softmax", "length": 0}, "length of Mlp is at least 1, here 0"),
        (
            CHARACTER_ENCODERS,
            {"kind": "convolution", "window": 0},
            "window of ConvolutionCharacters is at least 1, here 0",
        ),
    ],
)
def test_sizes_that_no_part_can_have(table, choice, message):
    with pytest.raises(SeqloomError, match=message):
        complete(table, choice)
