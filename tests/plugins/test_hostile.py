"""A config from a stranger imports nothing by a name but installed entry points of our groups."""

from __future__ import annotations

import importlib.metadata
import os

import pytest
import yaml

from seqloom import plugins
from seqloom.errors import SeqloomError
from seqloom.runs.settings.complete_training import complete_training
from tests.cli.conftest import one_line
from tests.plugins.toys import MODULE

NAMES = [
    *(
        "os.system",
        "os:system",
        "scores:biaffine",
        "seqloom.scores:biaffine",
        f"{MODULE}.scores",
        "../scores",
        "/tmp/x",
    ),
    *(f"{MODULE}.scores:Biaffine", "__import__('os')", "biaffine\n", "", " biaffine", "biaffine;", "a" * 1000),
    *(
        "__class__",
        "pop",
        "score-of-none",
        ["os", "system"],
        {"kind": "os.system"},
        {"kind": ["os"]},
        7,
        None,
        1.5,
        True,
    ),
]
RECORDS = [
    "os:system",
    ["scores:biaffine"],
    {"os:system": {"package": "seqloom-toys", "version": "0.3"}},
    {"scores:os.system": {"package": "seqloom-toys", "version": "0.3"}},
    {"scores": {"package": "seqloom-toys", "version": "0.3"}},
    {7: {"package": "seqloom-toys", "version": "0.3"}},
    {"scores:biaffine": None},
    {"scores:biaffine": {"package": "x; rm -rf ~", "version": "0.3"}},
    {"scores:biaffine": {"package": "--index-url=http://example.org", "version": "0.3"}},
    {"scores:biaffine": {"package": "toys", "version": "1 --pre"}},
    {"scores:biaffine": {"package": ["toys"], "version": 3}},
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from seqloom import train

    folder = tmp_path_factory.mktemp("hostile")
    pairs = [(f"w{number}", "ab"[number % 2]) for number in range(40)]
    train("translate", pairs, output=folder / "run", size="tiny", max_steps=1, quiet=True)
    return folder / "run"


@pytest.fixture
def imported(monkeypatch):
    """What is loaded or run on the way: nothing."""
    calls: list[str] = []
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda entry: calls.append(entry.value))
    monkeypatch.setattr(os, "system", calls.append)
    return calls


def changed(run, folder, change):
    config = yaml.safe_load((run / "config.yaml").read_text())
    change(config)
    folder.mkdir()
    for file in run.iterdir():
        if file.is_file() and file.name != "config.yaml":
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:30])
def test_names_of_parts_and_tasks(name, site, trained, tmp_path, seqloom, imported):
    changes = [
        lambda config: config["model"]["decoder"].update(score=name),
        lambda config: config["model"].update(encoder=name),
        lambda config: config["model"].update(kind=name),
        lambda config: config.update(task=name),
    ]
    for number, change in enumerate(changes):
        run = changed(trained, tmp_path / str(number), change)
        one_line(seqloom("predict", run, "--text", "a"))
    for key in ("optimizer", "schedule", "select"):
        run = changed(trained, tmp_path / key, lambda config, key=key: config["training"].update({key: name}))
        one_line(seqloom("predict", run, "--text", "a"))
    with pytest.raises(SeqloomError):  # it is looked up when a training starts or goes on
        complete_training("translate", {"objective": name}, {})
    one_line(seqloom("predict", trained, "--text", "a", "--decoding", str(name) or "?"))
    assert imported == []
    assert not plugins._loaded


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: repr(record)[:40])
def test_records_of_plugins(record, site, trained, tmp_path, seqloom, imported):
    run = changed(trained, tmp_path / "run", lambda config: config.update(plugins=record))
    one_line(seqloom("predict", run, "--text", "a"), "the key '7'" if "{7:" in repr(record) else "plugins")
    assert imported == []


def test_a_record_loads_nothing_by_itself(site, trained, tmp_path, seqloom, imported):
    """That a package is installed is looked up; what the model does not name is not imported."""
    record = {"scores:biaffine": {"package": "seqloom-toys", "version": "0.3"}}
    run = changed(trained, tmp_path / "run", lambda config: config.update(plugins=record))
    assert seqloom("predict", run, "--text", "a")[0] == 0
    assert imported == []
