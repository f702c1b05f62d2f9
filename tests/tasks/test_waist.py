"""Every task, whatever it does, keeps to the waist by which runs know it (see seqloom/tasks/shared/task.py)."""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.build import build, complete
from seqloom.data.files.columns import ReadOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Fold
from seqloom.runs.config import compose
from seqloom.tasks import presets
from seqloom.tasks.registry import TASKS, task
from seqloom.tasks.shared import task as waist
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.training.distributed.processes import ALONE
from seqloom.training.settings import Training
from tests.conftest import pronounce, words
from tests.tasks.conftest import sentences

HOME = Path(waist.__file__).parents[1]
CPU = torch.device("cpu")


def _pairs(draw: random.Random) -> str:
    return "".join(f"{word}\t{pronounce(word)}\n" for word in words(60, seed=draw.randint(1, 9)))


def _labels(draw: random.Random) -> str:
    return "".join(f"{line} {draw.randint(0, 9)}\t{draw.choice('pq')}\n" for line in sentences(60))


def _tags(draw: random.Random) -> str:
    lines = ("".join(f"{word}\t{word[0].upper()}\n" for word in line.split()) for line in sentences(60))
    return "\n".join(lines) + "\n"


def _table(draw: random.Random) -> str:
    rows = (f"{draw.random()},{draw.choice('abc')},some {i} text,{draw.choice('pq')}\n" for i in range(60))
    return "x,c,note,y\n" + "".join(rows)


def _text(draw: random.Random) -> str:
    return "".join(f"{line} {draw.randint(0, 99)}\n" for line in sentences(200))


# A small file of each task's own form.
SAMPLES = {
    "translate": ("pairs.tsv", _pairs),
    "classify": ("labels.tsv", _labels),
    "tag": ("tags.tsv", _tags),
    "generate": ("text.txt", _text),
    "mask": ("text.txt", _text),
    "vectors": ("text.txt", _text),
    "table": ("table.csv", _table),
}
EVERY = sorted(TASKS)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """`prepared(name)`: the task's data, prepared once."""
    found = {}

    def get(name: str):
        if name not in found:
            assert name in SAMPLES, f"{name}: give it a small file in SAMPLES"
            file, text = SAMPLES[name]
            folder = tmp_path_factory.mktemp(name)
            (folder / file).write_text(text(random.Random(1)), encoding="utf-8")
            options = task(name).options()
            ready = task(name).prepare(
                PrepareRequest([str(folder / file)], 0.2, options, seed=3, cache=folder / "cache")
            )
            found[name] = (str(folder / file), ready)
        return found[name]

    return get


def model_of(name: str, ready, model: str | None = None):
    config = compose(name, model, "tiny", {}, {}, {})
    config["decoding"] = task(name).decoding(ready, {})
    torch.manual_seed(1)
    return config, build(task(name).models, config["model"], **task(name).sizes(ready.vocabularies()))


def test_no_task_is_forgotten():
    """A module with a TASK is in the list that the command line knows, and the other way round."""
    homes = {path.parent.name for path in HOME.glob("*/task.py") if path.parent.name != "shared"}
    found = {home for home in homes if hasattr(import_module(f"seqloom.tasks.{home}.task"), "TASK")}
    assert found == set(TASKS)
    assert all(presets.default_model(name) in presets.about(name) for name in TASKS)


@pytest.mark.parametrize("name", EVERY)
def test_a_task_has_all_that_is_asked_of_it(name):
    found = task(name)
    assert found.name == name
    assert found.kind in found.models
    assert dataclasses.is_dataclass(found.options)
    assert issubclass(found.options, ReadOptions)
    assert found.options() == found.options(), "every option has a default"
    Training.of(dict(found.training))
    assert len(set(found.vocabularies)) == len(found.vocabularies) > 0
    for method, asked in inspect.getmembers(waist.Task, inspect.isfunction):
        if method.startswith("_"):
            continue
        wanted = list(inspect.signature(asked).parameters)[1:]
        assert list(inspect.signature(getattr(found, method)).parameters) == wanted, method


@pytest.mark.parametrize("name", EVERY)
def test_vocabularies_are_json_and_are_read_back(name, prepared, tmp_path):
    file, ready = prepared(name)
    told = dict(ready.vocabularies())
    assert set(told) == set(task(name).vocabularies)
    again = json.loads(json.dumps(told, allow_nan=False))
    assert task(name).sizes(again) == task(name).sizes(told)
    kept = task(name).prepare(
        PrepareRequest([file], 0.2, task(name).options(), seed=3, cache=tmp_path, vocabularies=again)
    )
    assert json.loads(json.dumps(dict(kept.vocabularies()))) == again


@pytest.mark.parametrize("name", EVERY)
def test_data_is_told_and_split(name, prepared, tmp_path):
    file, ready = prepared(name)
    assert all(isinstance(note, str) for note in ready.notes)
    json.dumps(ready.facts, allow_nan=False)
    assert ready.valid is not None
    assert ready.validation_examples()
    assert ready.train.fingerprint != ready.valid.fingerprint
    same = task(name).prepare(PrepareRequest([file], 0.2, task(name).options(), seed=3, cache=tmp_path))
    assert same.train.fingerprint == ready.train.fingerprint
    other = task(name).prepare(PrepareRequest([file], 0.4, task(name).options(), seed=3, cache=tmp_path))
    assert other.train.fingerprint != ready.train.fingerprint
    fold = task(name).prepare(PrepareRequest([file], Fold(1, 2), task(name).options(), seed=3, cache=tmp_path))
    assert len(fold.train) > 0
    assert fold.valid is not None
    assert task(name).prepare(PrepareRequest([file], 0.0, task(name).options(), seed=3, cache=tmp_path)).valid is None


@pytest.mark.parametrize("name", EVERY)
def test_every_preset_is_built_from_the_vocabularies(name, prepared):
    _, ready = prepared(name)
    for model in presets.about(name):
        if model == "logistic":
            continue  # for two labels
        for size in presets.SIZES[:1]:
            config = {"kind": task(name).kind, **presets.preset(name, model, size)}
            whole = complete(task(name).models, config)
            assert complete(task(name).models, whole) == whole, model
            build(task(name).models, whole, **task(name).sizes(ready.vocabularies()))


@pytest.mark.parametrize("name", EVERY)
def test_a_supply_counts_as_the_loss_does(name, prepared):
    _, ready = prepared(name)
    config, model = model_of(name, ready)
    settings = Training.of(config["training"])
    objective = task(name).objective(model, settings, config)
    for supply in (ready.train, ready.valid):
        plan = supply.plan(seed=1, epoch=0, batch_tokens=None, batch_rows=8)
        assert len(supply.costs(plan)) == len(plan) > 0
        rows = plan[len(plan) // 2]
        batch = supply.batch(rows)
        assert batch.rows == tuple(np.asarray(rows).tolist())
        loss = objective(batch.to(CPU))
        assert isinstance(loss.count, int)
        assert loss.count == supply.count(rows) > 0
        assert loss.total.ndim == 0
        assert torch.isfinite(loss.total)
        if hasattr(model, "fit") or loss.carried is not None:
            continue
        pieces = [objective(piece.to(CPU)) for piece in batch.micro_batches(3)]
        assert sum(piece.count for piece in pieces) == loss.count
        empty = objective(batch.zero_weight_row().to(CPU))
        assert empty.count == 0
        empty.total.backward()
        assert float(empty.total.detach()) == 0


@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_and_epoch_give_the_same_plan(name, prepared):
    supply = prepared(name)[1].train
    how = {"batch_tokens": None, "batch_rows": 8}
    one, same = supply.plan(seed=1, epoch=2, **how), supply.plan(seed=1, epoch=2, **how)
    assert one.order.tolist() == same.order.tolist()
    assert one.ends.tolist() == same.ends.tolist()


@pytest.mark.parametrize("name", EVERY)
def test_judges_score_what_is_held_out(name, prepared):
    _, ready = prepared(name)
    config, model = model_of(name, ready)
    settings = Training.of(config["training"])
    objective = task(name).objective(model, settings, config)
    before = torch.get_rng_state()
    scores = task(name).validator(model, ready, config, CPU)(objective, settings, ALONE)
    assert scores
    assert all(isinstance(value, float) for value in scores.values())
    assert "loss" in scores or settings.select in scores
    assert objective.training, "a judge leaves the objective as it was"
    assert torch.equal(before, torch.get_rng_state()), (
        "a judge draws no numbers: a run would differ by when it validates"
    )


@pytest.mark.parametrize("name", EVERY)
def test_a_runner_records_what_is_held_out(name, prepared, tmp_path):
    _, ready = prepared(name)
    config, model = model_of(name, ready)
    again = json.loads(json.dumps(dict(ready.vocabularies())))
    runner = task(name).runner(LoadedRun(tmp_path, config, model.eval(), again, CPU))
    assert runner.model is model
    assert runner.folder == tmp_path
    assert runner.config == config
    told = runner.evaluation_details(ready.validation_examples())
    json.dumps(told, allow_nan=False)
    assert told["metrics"]
    assert told["count"] > 0
