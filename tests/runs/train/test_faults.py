"""A fault at every file call of a save, a resume and a report: one line that names a file, and nothing is lost."""

from __future__ import annotations

import errno
import gc
import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml

import seqloom
from seqloom.errors import SeqloomError
from seqloom.files import locked, tidy
from seqloom.runs import config as configs
from seqloom.runs.folder.metrics_log import TIMING_KEYS, MetricsLog
from seqloom.runs.train.session import METRICS_FILE
from seqloom.training import checkpoint
from tests.conftest import words, write_pairs
from tests.faults import Faults, Killed

ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE, None)  # None: killed
LASTING = (errno.ENOSPC, errno.EMFILE)
LINE = {"step": 1, "loss": 2.5}

# What is dropped half closed complains once more when it is collected, as it does outside of tests.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def tensors(step):
    return {"w": torch.full((30, 10), float(step)), "b": torch.full((3,), float(step))}


def save(folder, step, extra=False):
    values = {"step": step, "journal": 0, "text": "é" * 50}
    checkpoint.save(folder / "checkpoints", tensors(step), {"order": torch.arange(5) + step}, values, 3, extra)


def begun(folder):
    """A run as far as step 6."""
    folder.mkdir(parents=True)
    for step in (2, 4, 6):
        save(folder, step)
    checkpoint.save_weights(folder / "model.safetensors", tensors(6))
    (folder / "config.yaml").write_text(yaml.safe_dump({"format": 1, "task": "translate"}))
    (folder / "metrics.jsonl").write_text((json.dumps(LINE) + "\n") * 6)


def saving(folder, extra=False):
    """What a training does from one checkpoint to the next."""
    with locked(folder):
        journal = MetricsLog(folder / "metrics.jsonl")
        checkpoint.save_weights(folder / "model.safetensors", tensors(8))
        journal.add({"step": 7})
        journal.sync()
        save(folder, 8, extra)


def resuming(folder):
    """What a training does before it goes on."""
    configs.load(folder)
    with locked(folder):
        tidy(folder)
        tidy(folder / "checkpoints")
        found, _ = checkpoint.newest(folder / "checkpoints")
        assert found is not None
        checkpoint.drop_newer(folder / "checkpoints", found.folder)
        MetricsLog(folder / "metrics.jsonl").cut_back(6 * (len(json.dumps(LINE)) + 1))
        configs.save(folder, configs.load(folder))
        return found


def again(folder):
    save(folder, 8)  # a step that was saved before a kill is saved again


WORKS = {
    "save": saving,
    "extra": lambda folder: saving(folder, extra=True),
    "resume": resuming,
    "again": again,
}


@cache
def before(work):
    """The files that it begins with."""
    with tempfile.TemporaryDirectory() as place:
        begun(Path(place) / "run")
        if work == "again":
            save(Path(place) / "run", 8)
        run = Path(place) / "run"
        return {file.relative_to(run): file.read_bytes() for file in run.rglob("*") if file.is_file()}


def start(folder, work):
    for name, raw in before(work).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)


def told(folder, work, at, error):
    """What it says with one fault: None, if it goes on all the same; nothing, if it is killed."""
    with Faults(folder, at, error, lasting=error in LASTING) as faults:
        try:
            work(folder)
        except SeqloomError as failed:
            return str(failed), faults
        except Killed:
            return "", faults
    return None, faults


def check(folder, work, at, error):
    """One fault; then what another start finds."""
    shutil.rmtree(folder, ignore_errors=True)
    start(folder, work)
    said, faults = told(folder, WORKS[work], at, error)
    where = f"{work}, call {at}: {faults.seen[at - 1]}, {error}"
    assert said in (None, "") or (str(folder) in said and "\n" not in said), f"{where}: {said}"
    found = resuming(folder)
    step = found.values["step"]
    assert step in (6, 8), where
    assert step == 8 or not (said is None and work != "resume"), (
        f"{where}: success was reported, and the newest is not there"
    )
    assert torch.equal(found.weights["w"], tensors(step)["w"]), where
    assert found.tensors["order"][0] == step
    assert checkpoint.read_tensors(folder / "model.safetensors")["w"][0, 0] in (6, 8), where
    assert MetricsLog(folder / "metrics.jsonl").lines()[:6] == [LINE] * 6, where
    left = [path.name for path in folder.rglob(".*") if path.name != ".lock"]
    assert not left, f"{where}: left {left}"


def calls(folder, work):
    start(folder, work)
    with Faults(folder) as faults:
        WORKS[work](folder)
    return faults.seen


def faults_of(tmp_path):
    """Every call of every work, with every error."""
    found = [
        (work, at + 1, error)
        for number, work in enumerate(WORKS)
        for at in range(len(calls(tmp_path / f"calls-{number}", work)))
        for error in ERRORS
    ]
    random.Random(11).shuffle(found)
    return found


def test_a_fault_while_saving_or_resuming_loses_nothing(tmp_path):
    for fault in faults_of(tmp_path)[:40]:
        check(tmp_path / "run", *fault)


@pytest.mark.slow
def test_every_fault_while_saving_or_resuming_loses_nothing(tmp_path):
    faults = faults_of(tmp_path)
    assert len(faults) >= 513
    for number, fault in enumerate(faults):
        check(tmp_path / "run", *fault)
        if number % 100 == 0:
            gc.collect()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of two steps, its data and its cache; and beside it the same run of four, as it should become."""
    folder = tmp_path_factory.mktemp("trained")
    write_pairs(folder / "words.tsv", words(60))
    train(folder, steps=2, resume=False)
    shutil.copytree(folder, folder / "right" / "all")
    train(folder / "right" / "all", steps=4)
    return folder


def train(folder, steps=4, resume=True):
    settings = {
        "max_steps": steps,
        "batch_rows": 8,
        "valid_every": 2,
        "save_every": 1,
        "valid_decode": 2,
        "keep_checkpoints": 2,
    }
    settings |= {"log_every": 1}
    seqloom.train(
        "translate",
        folder / "words.tsv",
        output=folder / "run",
        model="gru",
        size="tiny",
        training=settings,
        valid="20%",
        quiet=True,
        device="cpu",
        cache=folder / "cache",
        resume=resume,
    )


def outcome(folder):
    """What must come out the same, whatever went wrong between."""
    run = folder / "run"
    found = {name: (run / name).read_bytes() for name in ("model.safetensors", "source.json")}
    for one in checkpoint.checkpoint_folders(run / "checkpoints")[-2:]:
        found[one.name] = (one / "weights.safetensors").read_bytes()
    lines = [
        {key: value for key, value in line.items() if key not in TIMING_KEYS}
        for line in MetricsLog(run / METRICS_FILE).lines()
    ]
    return found, lines


def try_training(place, tmp_path, count, capsys):
    """A training that goes on meets a fault at any call for its run, its cache or its data; then it goes on without."""
    start, work = place / "right" / "all", tmp_path / "all"
    clean = shutil.ignore_patterns("right")
    shutil.copytree(place, work, ignore=clean)
    with Faults(work) as faults:
        train(work)
    calls, draw = len(faults.seen), random.Random(12)
    for _ in range(count):
        shutil.rmtree(work)
        shutil.copytree(place, work, ignore=clean)
        at, error = draw.randint(1, calls), draw.choice(ERRORS)
        said, faults = told(work, train, at, error)
        where = f"call {at}: {faults.seen[at - 1 : at]}, {error}: {said}"
        assert said in (None, "") or (str(work) in said and "\n" not in said), where
        train(work)
        assert outcome(work) == outcome(start), where
        assert (work / "run" / "report.html").is_file(), where
        assert not [path for path in (work / "run").rglob(".*") if path.name != ".lock"], where
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_while_training_changes_nothing(place, tmp_path, capsys):
    try_training(place, tmp_path, 2, capsys)


@pytest.mark.slow
def test_faults_while_training_change_nothing(place, tmp_path, capsys):
    try_training(place, tmp_path, 150, capsys)
