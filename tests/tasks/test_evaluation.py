"""What all tasks' records have in common."""

from __future__ import annotations

import hashlib
import json
import math
from types import SimpleNamespace

import torch
from torch import nn

from seqloom.tasks.evaluation import SCHEMA, Evaluation, frame


def test_the_frame_of_a_record():
    runner = SimpleNamespace(device=torch.device("cpu"), model=nn.Linear(3, 2))
    scores = Evaluation({"loss": math.nan}, {"loss": (0.5, math.inf)}, {"loss": "how"}, 6, ["not told"])
    told = frame(runner, scores, [["a", "b"]], 2.00049, 9)
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
    assert frame(runner, scores, b'[["a", "b"]]', 1.0, 9)["fingerprint"] == told["fingerprint"]
    assert frame(runner, scores, [], 0.0, 9)["per_second"] > 0  # a clock that did not move
