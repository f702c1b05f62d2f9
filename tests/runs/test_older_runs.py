"""Runs of earlier versions, whose settings had other names: they load, answer, report and go on to the last bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import seqloom
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import write_run_report
from seqloom.setting_names import LOG_KEYS, RENAMED, fold_of
from seqloom.training.checkpoint import checkpoint_folders, read_tensors
from tests.conftest import words, write_pairs

OLD = {
    section: {one: old for old, new in names.items() for one in ((new,) if isinstance(new, str) else new)}
    for section, names in RENAMED.items()
}
# Task -> how it is trained, and something to ask.
RUNS: dict[str, tuple[dict[str, Any], Any]] = {
    "translate": ({"model": "gru-attention", "lowercase": "casefold", "target_tokens": "words"}, ["abc"]),
    "classify": ({"model": "lstm-attention", "shorten_repeats": True, "truncate": "head", "r_drop": 1.0}, ["abc"]),
    "tag": ({"model": "lstm-crf", "repair_tags": True, "settings": {"unk_rate": 0.1}}, [["abc"]]),
    "table": ({"model": "mlp", "class_weights": "balanced", "column_types": {"size": "category"}}, [{"size": 3}]),
    "generate": ({"model": "awd-lstm", "vary_length": True, "optimizer": "asgd", "momentum": 0.0}, None),
    "mask": ({"model": "transformer", "mask_rate": 0.3}, None),
    "vectors": ({"model": "skipgram", "min_count": 1, "subsample": 0.5}, None),
}


def data(task: str, folder: Path) -> Path:
    every = words(60)
    if task == "translate":
        return write_pairs(folder / "pairs.tsv", every)
    lines = {
        "classify": [f"{w} {w}\t{'x' if 'a' in w else 'y'}" for w in every],
        "tag": [f"{w} {'B-X' if 'a' in w else 'O'}\n{w[::-1]} O\n" for w in every],
        "table": ["size,label", *(f"{len(w)},{'x' if 'a' in w else 'y'}" for w in every)],
    }.get(task, [" ".join(every[i : i + 5]) for i in range(0, 60, 5)])
    name = {"tag": "tags.conll", "table": "table.csv", "classify": "labels.tsv"}.get(task, "text.txt")
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder / name


def older(value: Any, names: dict[str, str]) -> Any:
    """Keys of nested settings by their old names."""
    if not isinstance(value, dict):
        return value
    return {names.get(key, key): older(one, names) for key, one in value.items()}


def aged(run: Path) -> None:
    """The run's folder as the version before wrote it."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["format"] == 4
    config["data"] |= {"lowercase": fold_of(config["data"]["lowercase"])} if "lowercase" in config["data"] else {}
    config = {**config, "format": 3} | {name: older(config[name], names) for name, names in OLD.items()}
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    log = (run / "metrics.jsonl").read_text()
    for new, old in {new: old for old, new in LOG_KEYS.items()}.items():
        assert f'"{new}":' in log
        log = log.replace(f'"{new}":', f'"{old}":'.ljust(len(new) + 3))  # of the length that its checkpoints tell
    (run / "metrics.jsonl").write_text(log)


@pytest.mark.parametrize("task", RUNS)
def test_a_run_of_format_3_is_used_as_it_was(tmp_path, task):
    how, asked = RUNS[task]
    train = {"size": "tiny", "valid": "10%", "device": "cpu", "quiet": True, "batch_rows": 8, "log_every": 1, **how}
    train |= {"learning_rate": 2e-3, "valid_every": 2}
    file = data(task, tmp_path)
    run = seqloom.train(task, file, output=tmp_path / "run", max_steps=2, **train).folder
    shutil.copytree(run, tmp_path / "new")
    aged(run)
    old, new = (configs.load(folder) for folder in (run, tmp_path / "new"))
    assert old == new
    assert not old["training"].keys() & RENAMED["training"].keys()
    if asked is not None:
        answers = [seqloom.load(folder, "cpu").predict(asked) for folder in (run, tmp_path / "new")]
        assert str(answers[0]) == str(answers[1])
    write_run_report(run)
    assert "Learning rate" in (run / "report.html").read_text()
    names = {one: old for section in ("data", "training") for one, old in OLD[section].items()}
    given = {names.get(key, key): fold_of(value) if key == "lowercase" else value for key, value in train.items()}
    given["settings"] = older(given.get("settings", {}), OLD["model"])
    gone_on = seqloom.train(task, file, output=run, resume=True, max_steps=4, **given)
    plain = seqloom.train(task, file, output=tmp_path / "new", resume=True, max_steps=4, **train)
    assert gone_on.config == {**plain.config, "inputs": gone_on.config["inputs"]}
    assert [line["step"] for line in gone_on.history() if "learning_rate" in line] == [1, 2, 3, 4]
    one, other = (
        read_tensors(checkpoint_folders(folder / "checkpoints")[-1] / "weights.safetensors")
        for folder in (run, plain.folder)
    )
    assert all(one[name].equal(other[name]) for name in one | other)
    assert yaml.safe_load((run / "config.yaml").read_text())["format"] == 4


def test_a_config_of_now_is_not_renewed(tmp_path):
    """In format 4 a word is what it says: `start`, once the old name of another setting, could be a new one's."""
    config = configs.compose("translate", None, None, {}, {}, {}) | {"inputs": {"train": ["x"]}}
    written = config | {"data": {**config["data"], "fold": True}, "training": {**config["training"], "rate": 1.0}}
    configs.save(tmp_path, written)
    assert configs.load(tmp_path)["data"]["fold"] is True
    configs.save(tmp_path, {**written, "format": 3})
    with pytest.raises(seqloom.SeqloomError, match=r"config\.yaml: data\.fold is the earlier name of data\.lowercase"):
        configs.load(tmp_path)
