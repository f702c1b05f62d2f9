"""What all tasks' records have in common."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import nn

from seqloom.data.datasets import catalog
from seqloom.data.files.columns import ReadOptions
from seqloom.tasks.shared.evaluation import SCHEMA, Evaluation, common_details, examples_of, reading_of


def test_the_frame_of_a_record():
    runner = SimpleNamespace(device=torch.device("cpu"), model=nn.Linear(3, 2))
    scores = Evaluation({"loss": math.nan}, {"loss": (0.5, math.inf)}, {"loss": "how"}, 6, ["not told"])
    told = common_details(runner, scores, [["a", "b"]], 2.00049, 9)
    assert list(told.items()) == [
        ("schema", SCHEMA),
        ("metrics", {"loss": None}),
        ("intervals", {"loss": [0.5, None]}),
        ("signature", {"loss": "how"}),
        ("count", 6),
        ("available", 9),
        ("fingerprint", hashlib.sha256(b'[["a", "b"]]').hexdigest()),
        ("device", "cpu"),
        ("parameters", 8),
        ("seconds", 2.0),
        ("per_second", 3.0),
    ]
    assert json.dumps(told, allow_nan=False)
    assert common_details(runner, scores, b'[["a", "b"]]', 1.0, 9)["fingerprint"] == told["fingerprint"]
    assert common_details(runner, scores, [], 0.0, 9)["per_second"] > 0  # a clock that did not move


def test_what_was_told_of_the_training_files_is_nothing_to_a_dataset(monkeypatch):
    data = {"columns": "text,label", "header": True, "delimiter": ";", "encoding": "latin-1", "detect": True}
    asked = []
    runner = SimpleNamespace(
        config={"task": "translate", "data": data},
        reading=lambda: reading_of({"data": data}),
        read=lambda files, reading: asked.append(reading) or ([1], []),
    )
    monkeypatch.setattr(catalog, "resolve", lambda names, *_: ["cache/a.tsv"] if names == ["cmudict"] else names)
    examples_of(runner, ["mine.tsv"], None)
    assert asked[-1] == ReadOptions(columns="text,label", header=True, delimiter=";", encoding="latin-1")
    examples_of(runner, ["cmudict"], None)
    assert asked[-1] == ReadOptions()
    examples_of(runner, ["cmudict"], replace(runner.reading(), encoding="utf-16", skip_bad=True))
    assert asked[-1] == ReadOptions(encoding="utf-16", skip_bad=True), "what is told now goes for it"
