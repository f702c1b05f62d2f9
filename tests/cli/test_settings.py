"""`seqloom settings`: every key that `--set` takes, with the defaults that a training has."""

from __future__ import annotations

import json

import pytest

from seqloom.options import flattened
from seqloom.runs.config import compose
from seqloom.runs.settings import setting_table
from seqloom.tasks.presets import SIZES, about
from seqloom.tasks.registry import TASKS
from tests.cli.conftest import one_line

EVERY = [(task, model) for task in TASKS for model in about(task)]


def test_the_table_is_that_of_the_constructors():
    from seqloom.runs.settings.signatures import table_json

    now = setting_table.FILE.read_text(encoding="utf-8") == table_json()
    assert now, "a keyword, a default or a table has changed: run python -m seqloom.runs.settings.signatures"


def test_every_key_has_a_line_and_right_choices():
    for task, model in EVERY:
        for one in setting_table.settings(task, model):
            assert one.about, f"{one.key} of {task} {model} has no line: write one in runs/settings/setting_help.py"
            assert not one.choices or one.default is None or one.default in one.choices, one


def test_no_line_is_left_over():
    """What is in the wordbook but means no keyword is a slip or was renamed."""
    from seqloom.runs.settings.setting_help import HELP

    book = json.loads(setting_table.FILE.read_text(encoding="utf-8"))
    told = [one["about"] for part in book["parts"].values() for one in part.values()]
    told += [one["about"] for task in book["tasks"].values() for one in task["data"].values()]
    told += [one["about"] for one in book["training"].values()]
    assert not {name for name, line in HELP.items() if line not in told and name != "kind"}


@pytest.mark.parametrize(("task", "model"), EVERY)
def test_keys_and_defaults_are_those_of_a_config(task, model):
    """All that a config holds can be set, and nothing else is listed."""
    made = compose(task, model, "small", {}, {}, {})
    wanted = {f"{section}.{name}": value for section in ("training", "data") for name, value in made[section].items()}
    wanted |= {name.removesuffix(".kind"): value for name, value in flattened(made["model"]).items()}
    wanted.pop("kind", None)
    listed = {one.key: one.default for one in setting_table.settings(task, model) if one.key != "kind"}
    assert listed.keys() == wanted.keys()
    plain = wanted.keys() - _choices(made["model"])
    assert {key: listed[key] for key in plain} == {key: wanted[key] for key in plain}


def _choices(model: dict, prefix: str = "") -> set[str]:
    """Keys that name a part: a config holds what the name stands for."""
    found: set[str] = set()
    for name, value in model.items():
        if isinstance(value, dict):
            found |= {f"{prefix}{name}"} | _choices(value, f"{prefix}{name}.")
    return found


def test_the_command(seqloom):
    status, out, _ = seqloom("settings", "translate", "transformer", "--find", "cross")
    assert status == 0
    first, *rest = out.splitlines()
    assert first.startswith("translate transformer small: what --set takes")
    assert [line.split()[0] for line in rest] == [
        "decoder.cross",
        "decoder.cross.key_heads",
        "decoder.cross.projections",
        "decoder.cross.normalizer",
        "decoder.cross.dropout",
    ]
    told = json.loads(seqloom("settings", "tag", "--json", "--size", "base")[1])
    assert (told["model"], told["size"]) == ("lstm-crf", "base")
    assert {one["key"]: one["default"] for one in told["settings"]}["encoder.dim"] == 256
    assert "models: ngram, rnn" in seqloom("settings", "generate", "--find", "clip")[1]


def test_wrong_words(seqloom):
    one_line(seqloom("settings", "transalte"), "unknown task 'transalte'; did you mean 'translate'?")
    one_line(seqloom("settings", "tag", "bag"), "unknown model of tag 'bag'")
    one_line(seqloom("settings", "tag", "--size", "huge"), "unknown size 'huge'", ", ".join(sorted(SIZES)))
