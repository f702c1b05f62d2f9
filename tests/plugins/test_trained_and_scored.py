"""Objectives, schedules, optimizers, decodings and metrics of another package: their own settings, and every other
place that takes their names."""

from __future__ import annotations

import json

import pytest
import yaml

from seqloom import Search, load
from tests.cli.conftest import one_line
from tests.plugins.conftest import forget
from tests.plugins.test_plugins import config_of, take_away, words
from tests.plugins.toys import PACKAGE, TOYS, VERSION

OWN = [
    ("objectives", "objective", {"gamma": 1.5}, "gama"),
    ("schedules", "schedule", {"every": 1}, "evry"),
    ("optimizers", "optimizer", {"eps": 1e-8}, "ep"),
]


@pytest.mark.parametrize(("kind", "key", "settings", "slip"), OWN)
def test_their_own_settings(kind, key, settings, slip, site, labelled, tmp_path, seqloom):
    run = tmp_path / "run"
    ((name, value),) = settings.items()
    start = words(kind, labelled, run)
    one_line(seqloom("train", *start, "--set", f"training.{key}.{slip}=1"), f"did you mean {name!r}")
    assert seqloom("train", *start, "--set", f"training.{key}.{name}={value}")[0] == 0
    assert config_of(run)["training"][key] == {"kind": TOYS[kind].name, **settings}
    forget()
    resume = ["train", start[0], labelled, "--output", run, "--resume", "--quiet", "--max-steps"]
    assert seqloom(*resume, 3)[0] == 0
    forget()
    one_line(seqloom(*resume, 4, "--set", f"training.{key}.{name}=2"), "cannot resume", f"{key}.{name}")


def test_several_at_once_are_recorded(site, labelled, tmp_path, seqloom):
    how = words("objectives", labelled, tmp_path / "run")
    assert seqloom("train", *how, "--schedule", "halving", "--optimizer", "adagrad", "--set", "encoder=bag")[0] == 0
    names = {"encoders:bag", "objectives:focal", "optimizers:adagrad", "schedules:halving"}
    assert config_of(tmp_path / "run")["plugins"] == {
        name: {"package": PACKAGE, "version": VERSION} for name in sorted(names)
    }


def test_slips_of_their_names(site, labelled, tmp_path, seqloom):
    start = words("tasks", labelled, tmp_path / "run")
    one_line(seqloom("train", *start, "--set", "training.objective=focl"), "unknown objective 'focl'")
    one_line(seqloom("train", *start, "--schedule", "halvin"), "unknown schedule 'halvin'")
    one_line(seqloom("train", *start, "--optimizer", "adagard"), "unknown optimizer 'adagard'")
    one_line(seqloom("train", *start, "--set", "training.select=odd_lenght"), "unknown score to select by 'odd_lenght'")
    one_line(seqloom("train", *start, "--set", "training.select=odd_length"), "score to select by in moods")
    forget()
    pairs = words("decodings", labelled, tmp_path / "pairs")
    one_line(seqloom("train", *pairs, "--set", "training.objective=focal"), "focal is not for translate")


def test_a_task_has_the_objectives_and_metrics_of_the_one_it_derives_from(site, labelled, tmp_path, seqloom):
    run = tmp_path / "run"
    assert seqloom("train", *words("tasks", labelled, run), "--set", "training.objective=focal")[0] == 0
    assert config_of(run)["plugins"].keys() == {"objectives:focal", "tasks:moods"}
    assert "accuracy" in seqloom("evaluate", run, labelled, "--metrics", "accuracy,macro_f1")[1]


@pytest.fixture
def pairs_run(site, labelled, tmp_path, seqloom):
    """A run without plug-ins."""
    assert seqloom("train", *words("decodings", labelled, tmp_path / "pairs"))[0] == 0
    forget()
    return tmp_path / "pairs"


def test_a_decoding(pairs_run, labelled, seqloom, site, monkeypatch):
    predict = ("predict", pairs_run, "--text", "good day", "--decoding")
    greedy, second = seqloom(*predict, "greedy")[1], seqloom(*predict, "ranked:rank=1")[1]
    assert greedy == seqloom(*predict, "ranked")[1] == seqloom(*predict, "ranked:rank=0")[1] != second
    one_line(seqloom(*predict, "ranked:rnak=1"), "--decoding: ", "did you mean 'rank'")
    one_line(seqloom(*predict, "rankd"), "--decoding: unknown decoding 'rankd'; did you mean 'ranked'")
    status, out, _ = seqloom("evaluate", pairs_run, labelled, "--decoding", "ranked:rank=1")
    assert (status, ", ranked" in out) == (0, True)
    forget()
    search = Search(decoding={"kind": "ranked", "rank": 1})
    assert load(pairs_run).predict("good day", search) == second.rstrip("\n")
    take_away(site, monkeypatch)
    one_line(seqloom(*predict, "ranked"), "--decoding: unknown decoding 'ranked'")


def test_a_metric(pairs_run, labelled, site, tmp_path, seqloom, monkeypatch):
    evaluate = ("evaluate", pairs_run, labelled, "--metrics")
    one_line(seqloom(*evaluate, "odd_lenght"), "unknown metric 'odd_lenght'")
    assert "odd_length" in seqloom(*evaluate, "odd_length,per")[1]
    assert "odd_length" in json.loads(seqloom(*evaluate, "odd_length", "--json")[1])["metrics"]
    chosen = tmp_path / "chosen"
    assert seqloom("train", *words("metrics", labelled, chosen))[0] == 0
    lines = (json.loads(line) for line in (chosen / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert all("odd_length" in line["valid"] for line in lines if "valid" in line)
    forget()
    assert "odd_length" in seqloom("evaluate", chosen, labelled)[1], "the score that it was selected by"
    forget()  # a page is often made by another process
    assert seqloom("report", chosen)[0] == 0
    assert "lengths that differ" in (chosen / "report.html").read_text(encoding="utf-8").casefold()
    forget()
    page = tmp_path / "page.html"
    assert seqloom("report", chosen, pairs_run, "--output", page)[0] == 0
    text = page.read_text(encoding="utf-8").casefold()
    assert "lengths that differ<small>lower is better" in text
    take_away(site, monkeypatch)
    one_line(seqloom(*evaluate, "odd_length"), "unknown metric 'odd_length'")


def test_a_recipe_names_them(site, labelled, tmp_path, seqloom, monkeypatch):
    recipe = {
        "about": "x",
        "task": "translate",
        "train": str(labelled),
        "test": str(labelled),
        "model": "lstm",
        "size": "tiny",
        "training": {"max_steps": 2, "optimizer": "adagrad", "schedule": {"kind": "halving", "every": 1}},
        "evaluate": {"decoding": "ranked:rank=1", "metrics": ["odd_length", "per"]},
    }
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    status, out, err = seqloom("train", "--recipe", file, "--output", tmp_path / "run")
    assert status == 0, err
    assert "odd_length" in out
    assert config_of(tmp_path / "run")["plugins"].keys() == {"optimizers:adagrad", "schedules:halving"}
    take_away(site, monkeypatch)
    one_line(
        seqloom("train", "--recipe", file, "--output", tmp_path / "other"),
        "unknown metric of evaluate in own.yaml 'odd_length'",
    )
