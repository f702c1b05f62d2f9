"""One table says of every score what makes it, its unit and which way is better."""

from __future__ import annotations

from importlib import import_module

import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.classification import LABEL_METRICS, NUMBER_METRICS
from seqloom.metrics.metric_table import KINDS, METRICS, Metric, lower_is_better, selectable
from seqloom.metrics.span_f1 import TAG_METRICS
from seqloom.metrics.text.text_metrics import METRICS as TEXT_METRICS
from seqloom.tasks.registry import TASKS, task

LOWER = {"per", "cer", "wer", "perplexity", "calibration_error", "mse", "mae", "loss", "bits_per_character"}


def test_every_function_is_in_the_table_and_the_other_way_round():
    found = {"texts": TEXT_METRICS, "labels": LABEL_METRICS, "numbers": NUMBER_METRICS, "tags": TAG_METRICS}
    assert found.keys() == set(KINDS)
    for kind, functions in found.items():
        assert {name for name, metric in METRICS.items() if kind in metric.of} == functions.keys()
        for name, function in functions.items():
            home, _, own_name = str(METRICS[name].of[kind]).partition(":")
            assert getattr(import_module(home), own_name) is function
            assert own_name == name


def test_every_score_has_a_direction():
    assert {name for name in METRICS if lower_is_better(name)} == LOWER
    with pytest.raises(SeqloomError, match="needs a direction"):
        Metric("new", "%", "", "nobody said which way is better")
    with pytest.raises(TypeError):
        Metric("new", "%")  # type: ignore[call-arg]
    with pytest.raises(SeqloomError, match="unknown metric 'surprise'"):
        lower_is_better("surprise")  # before, it was minimised in silence


@pytest.mark.parametrize("name", TASKS)
def test_all_that_a_task_selects_by_is_in_the_table(name):
    assert {*task(name).scores, task(name).training["select"]} <= set(selectable())
