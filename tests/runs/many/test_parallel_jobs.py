"""Trainings at once: the same as one after another, interrupted and gone on with, and a fault in one of them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from seqloom.errors import SeqloomError
from seqloom.runs.many import cross_validation, parallel_jobs, recipe_members
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.train.job import Job
from seqloom.training.checkpoint import read_tensors
from tests.conftest import words, write_pairs
from tests.processes import start

TEXT = {"source_tokens": "chars", "target_tokens": "words"}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """As in the tests themselves: sums over other numbers of threads differ in their last bit."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))


def recipe(folder: Path, pairs: Path, **training) -> recipes.Recipe:
    test = write_pairs(folder / "test.tsv", words(20, seed=5))
    plain = {"about": "two", "paper": "none", "task": "translate", "train": str(pairs), "test": str(test)}
    plain |= {"model": "gru", "size": "tiny", "data": TEXT, "members": [{"seed": 1}, {"seed": 2}]}
    plain["training"] = {"max_steps": 3, "batch_rows": 32, "valid_decode": 10, **training}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(plain))
    return recipes.load(str(path))


def asked(output: Path, **more) -> Job:
    return Job(task="", files=[], output=output, device="cpu", **more)


def test_members_at_once_are_those_one_after_another(pairs, tmp_path, capfd):
    mine = recipe(tmp_path, pairs)
    apart = recipe_members.run_members(mine, asked(tmp_path / "apart"), "quiet")
    together = recipe_members.run_members(mine, asked(tmp_path / "together"), "log_json", parallel=2)
    assert together.scores["metrics"] == apart.scores["metrics"]
    assert [one.scores["metrics"] for one in together.results] == [one.scores["metrics"] for one in apart.results]
    assert together.lines(mine) == apart.lines(mine)
    for name in "12":
        first, second = (read_tensors(tmp_path / out / name / "model.safetensors") for out in ("apart", "together"))
        assert all(torch.equal(first[key], second[key]) for key in first)
    said = [line for line in capfd.readouterr().err.splitlines() if '"note"' in line]
    assert {line.partition(",")[0] for line in said[:-1]} == {'{"part": "member 1"', '{"part": "member 2"'}
    assert "all together" in said[-1]
    assert "All together" in (tmp_path / "together" / "report.html").read_text(encoding="utf-8")


def test_folds_at_once(pairs, tmp_path, capfd):
    training = {"max_steps": 2, "batch_rows": 32, "valid_decode": 10}
    plain = Job(task="translate", files=pairs, output="", model="gru", size="tiny", data=TEXT, training=training)
    found = [
        cross_validation.cross_validate(replace(plain, output=tmp_path / str(count), device="cpu"), 2, kind, count)
        for count, kind in ((1, "quiet"), (2, "default"))
    ]
    assert found[0].scores == found[1].scores
    assert "fold-1: " in capfd.readouterr().err


def test_a_fault_in_one_ends_all(pairs, tmp_path):
    job = Job(
        task="translate", files=pairs, output=tmp_path / "long", model="gru", size="tiny", data=TEXT, device="cpu"
    )
    parts = [
        parallel_jobs.NamedJob("long", job),
        parallel_jobs.NamedJob("gone", Job(task="translate", files="gone.tsv", output=tmp_path / "x")),
    ]
    with pytest.raises(SeqloomError, match=r"gone: gone.tsv: "):
        parallel_jobs.run_parallel(parts, 2, "quiet")
    with pytest.raises(SeqloomError, match="--jobs takes 1 or more"):
        parallel_jobs.check_jobs(0)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_interrupted_and_gone_on_with(pairs, tmp_path, number):
    """Asked to stop, or killed: its trainings save and end, and none is left behind."""
    recipe(tmp_path, pairs, max_steps=400)
    run = ["train", "--recipe", str(tmp_path / "mine.yaml"), "--jobs", "2"]
    run += ["-o", str(tmp_path / "out"), "--device", "cpu", "--set", "training.log_every=1"]
    process = start(run, stderr=tmp_path / "said")
    journals = [tmp_path / "out" / name / "metrics.jsonl" for name in "12"]
    deadline = time.monotonic() + 90
    while not all(one.exists() and one.read_text().count("\n") > 2 for one in journals):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.pid
    os.kill(process.pid, number)
    process.join(60)
    if number != signal.SIGKILL:
        said = (tmp_path / "said").read_text()
        assert process.exitcode == 128 + number
        assert "go on with: seqloom train --recipe" in said
        assert "--jobs 2" in said
    while not all(any((one.parent / "checkpoints").glob("step-*")) for one in journals):  # without a parent, soon
        assert number == signal.SIGKILL
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_standard_input_cannot_be_shared(tmp_path):
    job = Job(task="translate", files="-", output=tmp_path / "x")
    with pytest.raises(SeqloomError, match="cannot share standard input; write the data to a file first"):
        parallel_jobs.run_parallel([parallel_jobs.NamedJob("one", job)], 2)


def test_whatever_a_training_says_is_handed_on(capsys):
    """A library's line that begins like JSON and is none."""
    lines = ['{"step": 1}\n', "{not json}\n", "plain\n"]
    parallel_jobs._relay(iter(lines), "a", "log_json")  # pyright: ignore[reportArgumentType]
    assert capsys.readouterr().err.splitlines() == ['{"part": "a", "step": 1}', "a: {not json}", "a: plain"]


def test_gpus_are_taken_in_turn(monkeypatch, tmp_path):
    jobs = [Job(task="tag", files="x", output="", device=device) for device in ("auto", "cuda", "cpu", "cuda")]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    placed = parallel_jobs._with_gpus([parallel_jobs.NamedJob("", job) for job in jobs])
    assert [one.job.device for one in placed] == ["cuda:0", "cuda:1", "cpu", "cuda:1"]
