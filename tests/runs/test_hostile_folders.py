"""Damaged and hostile run folders, by a table: one line or no harm, at once, and nothing outside is touched."""

from __future__ import annotations

import contextlib
import io
import shutil
import time
from pathlib import Path

import pytest

import seqloom
from seqloom.cli.info import info
from seqloom.errors import SeqloomError
from seqloom.runs.evaluate.report_files import write_report
from seqloom.runs.folder.metrics_log import MetricsLog
from tests.conftest import words, write_pairs
from tests.hostile import CASES, Case, within

SECONDS = 10


def train(data: Path, output: Path, steps: int, **more):
    training = {"batch_rows": 8, "valid_every": 2, "save_every": 1, "valid_decode": 2, "max_steps": steps}
    return seqloom.train(
        "translate", data, output=output, training=training, valid="20%", quiet=True, device="cpu", **more
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger")
    data = write_pairs(folder / "words.tsv", words(60))
    train(data, folder / "whole", 2, model="gru-attention", size="tiny")
    return folder


def do(use: str, run: Path, data: Path) -> None:
    if use in ("load", "evaluate"):
        model = seqloom.load(run, device="cpu")
        model.predict(["abc"]) if use == "load" else model.evaluate(str(data))
    elif use == "report":
        write_report([run])
    elif use == "info":
        with contextlib.redirect_stdout(io.StringIO()):
            info(str(run))
    elif use == "history":
        MetricsLog(run / "metrics.jsonl").lines()
    elif use == "resume":
        train(data, run, 4, resume=True)
    else:
        train(data, run.with_name("another"), 1, start=run)


def told(case: Case, use: str, place: Path, tmp_path: Path) -> str | None:
    """The line that it ends with; None: it worked."""
    work = tmp_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(place / "whole", work / "run")
    case.change(work / "run")
    try:
        with within(SECONDS):
            do(use, work / "run", place / "words.tsv")
    except SeqloomError as error:
        return str(error)
    return None


def named(case: Case) -> list[str]:
    """A key, or what stands under it."""
    words = (word.strip("'[]") for word in case.done.replace(".", " ").split(" "))
    return [word for word in words if len(word) > 2]


def wrong(case: Case, place: Path, tmp_path: Path) -> list[str]:
    """What a case does that it should not."""
    found = []
    for use in case.uses:
        try:
            line = told(case, use, place, tmp_path)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found.append(f"{use}: {type(error).__name__}: {error}")
            continue
        if line is None and not case.harmless(use):
            found.append(f"{use}: went unnoticed")
        if line is not None and case.harmless(use):
            found.append(f"{use}: should work: {line}")
        if line is not None and ("\n" in line or len(line) > 2000):
            found.append(f"{use}: more than a line: {line}")
        if line is not None and not any(part in line for part in (str(tmp_path), case.file, *named(case))):
            found.append(f"{use}: does not say where: {line}")
    return [f"{case}: {one}" for one in found]


def check(cases: list[Case], place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "victim"
    outside.write_text("precious\n")
    found = [line for case in cases for line in wrong(case, place, tmp_path)]
    assert not found, "\n".join(found)
    assert outside.read_text() == "precious\n"
    assert {path.name for path in tmp_path.iterdir()} == {"victim", "work"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A command that a file runs would leave what it makes here."""
    monkeypatch.chdir(tmp_path)


def test_a_stranger_s_run_is_refused_in_a_line(place, tmp_path):
    check(CASES[::40], place, tmp_path)


@pytest.mark.parametrize("name", ["dim is '30000'", "layers is '100000000'", "embedding is '1000000'"])
def test_a_model_larger_than_its_weights_is_never_made(place, tmp_path, name):
    """It would take all memory, or minutes, before it is found not to fit."""
    [case] = [case for case in CASES if case.done in (f"model.{name}", f"model.encoder.{name}")]
    started = time.process_time()
    for use in ("load", "resume", "from"):
        line = told(case, use, place, tmp_path)
        assert line is not None
        assert "config.yaml" in line
        assert "which is larger" in line or "at most 1,000" in line
    assert time.process_time() - started < SECONDS


@pytest.mark.slow
def test_every_damaged_run_is_refused_in_a_line(place, tmp_path):
    assert len({str(case) for case in CASES}) == len(CASES) >= 471
    check(CASES, place, tmp_path)
