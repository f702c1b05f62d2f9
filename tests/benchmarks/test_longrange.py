"""ListOps and pixels through the frame, on toys; the time is shared out as it is said."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from long_range import NAMES, PUBLISHED, TASKS, Learner, arguments, grouped, main, prepare, table, works

from seqloom.data.datasets import catalog

TOY = {"dim": 32, "rows": dict.fromkeys(TASKS, 16), "rate": 1e-2, "dropout": 0.0, "seed": 1, "plain": False}


def test_expressions_are_numbered_and_padded_after(tmp_path):
    prepare(tmp_path, ["listops"], tiny=True)
    with np.load(tmp_path / "listops.npz") as stored:
        tokens, labels = stored["test_tokens"], stored["test_labels"]
    names = list(NAMES)
    for row, label, (text, wanted) in zip(tokens, labels, catalog.find("listops-short").examples("test"), strict=False):
        assert " ".join(names[token] for token in row).strip() == text
        assert str(label) == wanted


@pytest.mark.parametrize("mixer", ["attention", "lstm", "bigbird", "linformer"])
def test_a_toy_is_learned(mixer, tmp_path):
    prepare(tmp_path, ["pixels"], tiny=True)
    asked = {"mixer": mixer, "task": "pixels", "file": tmp_path / "pixels.npz", "within": 60, "steps": 120, **TOY}
    told = Learner(asked).learn(asked)
    assert told["score"] > 0.6
    assert told["epochs"] == 30


def test_toys_run_through_processes(tmp_path, capsys):
    file = tmp_path / "found.json"
    words = ["--tiny", "--jobs", "1", "--data", str(tmp_path), "--tasks", "listops", "--output", str(file)]
    main([*words, "--only", "mingru"])
    assert json.loads(file.read_text())["results"][0]["updates"] == 6
    assert "| minGRU |" in capsys.readouterr().out


def test_rows_of_like_lengths_stand_together_and_none_is_left_out():
    lengths = torch.tensor([3, 40, 9, 17, 16, 33, 2, 8, 25])
    parts = grouped(lengths)
    assert sorted(row for _, rows in parts for row in rows.tolist()) == list(range(9))
    assert [longest for longest, _ in parts] == [8, 16, 32, 40]
    assert all(lengths[rows].max() <= longest for longest, rows in parts)


def test_attention_on_pictures_has_all_of_the_time():
    made = [chain[0] for chain in works(arguments(["--jobs", "8", "--seconds", "480"]))]
    assert [(one["mixer"], one["task"], one["within"]) for one in made[:2]] == [
        ("attention", "pixels", 440),
        ("attention", "pixels-permuted", 440),
    ]
    assert sum(one["within"] for one in made[2:]) == pytest.approx(6 * 440)
    assert all(len({one["mixer"] for one in made if one["task"] == task}) >= 6 for task in TASKS)


def test_the_table_has_the_published_figure_beside_ours():
    found = [{"mixer": "attention", "task": "listops", "score": 0.3712, "epochs": 2.5, "parameters": 800_000}]
    assert "| attention | 800,000 | 37.12 | 36.37 | 2.5 |  | 98.9 |" in table(found)
    assert set(PUBLISHED) == set(TASKS)


@pytest.mark.skipif(not os.environ.get("SEQLOOM_DATA"), reason="$SEQLOOM_DATA names no mirror of the datasets")
def test_pixels_are_those_of_the_registry(tmp_path):
    prepare(tmp_path, ["pixels-permuted"])
    with np.load(tmp_path / "pixels-permuted.npz") as stored:
        tokens, labels = stored["valid_tokens"], stored["valid_labels"]
    text, label = next(catalog.find("pixels-permuted").examples("valid"))
    assert (" ".join(map(str, tokens[0])), str(labels[0])) == (text, label)
    assert tokens.shape == (5_000, 784)
