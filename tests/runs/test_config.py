"""Configs of older runs."""

from __future__ import annotations

import pytest
import torch
import yaml

import seqloom
from seqloom.errors import SeqloomError
from seqloom.runs import config as configs
from seqloom.runs.settings.train_keywords import into_sections
from seqloom.training.checkpoint import read_tensors
from tests.conftest import words, write_pairs


def test_a_run_from_before_an_option_resumes(tmp_path):
    """What it does not say is the default; anything else is still another setting."""
    data, folder = write_pairs(tmp_path / "few.tsv", words(40)), tmp_path / "run"
    settings = {"size": "tiny", "valid": "10%", "quiet": True, "output": folder}
    seqloom.train("translate", data, training={"max_steps": 2}, **settings)
    older = yaml.safe_load((folder / "config.yaml").read_text())
    del older["data"]["half_width"]
    (folder / "config.yaml").write_text(yaml.safe_dump(older))
    with pytest.raises(SeqloomError, match=r"data\.half_width: False -> True"):
        seqloom.train("translate", data, data={"half_width": True}, resume=True, **settings)
    assert seqloom.train("translate", data, training={"max_steps": 3}, resume=True, **settings).step == 3


def test_a_newer_format_is_named(tmp_path):
    (tmp_path / "config.yaml").write_text("format: 99\n")
    with pytest.raises(SeqloomError, match=r"newer Seqloom \(format 99, this one reads up to \d+\); upgrade seqloom"):
        configs.load(tmp_path)


def latest(run):
    return read_tensors(sorted((run / "checkpoints").iterdir())[-1] / "weights.safetensors")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_classifier_with_a_setting_of_old_loads_and_resumes(tmp_path, frozen):
    """Once there was `frozen: true`, for embeddings that stay as they are, beside `training.freeze: source`."""
    (tmp_path / "labelled.tsv").write_text("".join(f"{w} {w}\t{'x' if 'a' in w else 'y'}\n" for w in words(40)))
    settings = {"model": "bag", "size": "tiny", "valid": "10%", "quiet": True, "output": tmp_path / "run"}
    freeze = {"freeze": "source"} if frozen else {}
    seqloom.train("classify", tmp_path / "labelled.tsv", training={"max_steps": 2, **freeze}, **settings)
    older = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert "frozen" not in older["model"]
    older["model"]["frozen"], older["training"]["freeze"] = frozen, None
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(older))
    before = latest(tmp_path / "run")
    seqloom.train("classify", tmp_path / "labelled.tsv", training={"max_steps": 4}, resume=True, **settings)
    changed = {name for name, tensor in latest(tmp_path / "run").items() if not torch.equal(tensor, before[name])}
    assert changed == before.keys() - ({"source.weight"} if frozen else set())
    assert seqloom.load(tmp_path / "run", "cpu").config["training"]["freeze"] == ("source" if frozen else None)


def test_optimiser_is_another_spelling(tmp_path):
    """Configs keep one name, however it was spelled."""
    written = tmp_path / "mine.yaml"
    written.write_text("preset: gru\ntraining: {optimiser: sgd}\n")
    for way in (
        configs.compose("translate", None, None, {}, {"optimiser": "sgd"}, {}),
        configs.compose("translate", None, None, {}, {}, {"training.optimiser": "sgd"}),
        configs.compose("translate", str(written), None, {}, {}, {}),
        configs.compose("translate", None, None, {}, {"optimizer": "sgd", "optimiser": None}, {}),
    ):
        assert way["training"]["optimizer"] == "sgd"
        assert "optimiser" not in way["training"]
    saved = {**configs.compose("translate", None, None, {}, {}, {}), "inputs": {}}
    again = configs.compose("translate", None, None, {}, {"optimiser": "sgd"}, {}, saved)
    assert again["training"]["optimizer"] == "sgd"
    assert into_sections("translate", {"optimiser": "sgd"}, None, None, None).training == {"optimizer": "sgd"}
    with pytest.raises(SeqloomError, match=r"optimiser is the earlier name of .*optimizer, and both are given"):
        configs.compose("translate", None, None, {}, {"optimizer": "sgd", "optimiser": "adamw"}, {})
    with pytest.raises(SeqloomError, match="unknown optimizer 'sdg'"):
        configs.compose("translate", None, None, {}, {"optimiser": "sdg"}, {})


@pytest.mark.parametrize(("key", "meant"), [("learning_rate", "training"), ("rate", "training"), ("lowercase", "data")])
def test_a_setting_without_its_section_is_shown_with_it(key, meant):
    with pytest.raises(SeqloomError, match=f"unknown setting '{key}'; did you mean '{meant}.{key}'"):
        configs.compose("translate", None, None, {}, {}, {key: 0.1})


def test_case_is_lost_in_two_ways_and_what_was_true_stays_so():
    from seqloom.data.encoding.encode import normalize_all
    from seqloom.data.prepare.pairs import DataOptions

    made = configs.compose("translate", None, None, {"fold": True}, {}, {})
    assert made["data"]["lowercase"] == "casefold", "older recipes are as they were"
    assert configs.compose("translate", None, None, {}, {}, {"data.lowercase": True})["data"]["lowercase"] == "lower"
    ways = {case: DataOptions(lowercase=case).normalization for case in (False, True, "lower", "casefold")}
    said = {case: normalize_all(["Weiß É"], way) for case, way in ways.items()}
    assert said == {False: ["Weiß É"], True: ["weiß é"], "lower": ["weiß é"], "casefold": ["weiss é"]}
    for task in ("classify", "tag", "generate", "mask", "vectors", "table"):
        with pytest.raises(SeqloomError, match="unknown value of lowercase 'upper'"):
            configs.compose(task, None, None, {"lowercase": "upper"}, {}, {})
    with pytest.raises(SeqloomError, match=r"data\.lowercase takes true or false or text, here 3"):
        configs.compose("translate", None, None, {"fold": 3}, {}, {})
