"""Run folders prepared by a stranger: nothing outside is read, written or deleted, and nothing is waited for."""

from __future__ import annotations

import os
import shutil
import socket

import pytest

import seqloom
from seqloom.errors import SeqloomError
from seqloom.files import locked, tidy
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import write_report
from seqloom.runs.folder.metrics_log import MetricsLog
from seqloom.training.checkpoint import read_tensors
from tests.conftest import words, write_pairs
from tests.hostile import within

OURS = (".lock", "metrics.jsonl", "config.yaml", "model.safetensors", "source.json", "data.json", "env.json")
OURS += ("evaluation-valid.json", "report.html", "README.md", "ensemble.json", "engine.json")
FOLDERS = ("checkpoints", "engines", ".a.tmp", ".config.yaml.old", "checkpoints/step-999999999", "checkpoints/.b.old")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    place = tmp_path_factory.mktemp("small")
    data = write_pairs(place / "words.tsv", words(60))
    train(data, place / "run", max_steps=2)
    return place


def train(data, output, resume=False, **training):
    settings = {"batch_rows": 8, "valid_every": 2, "save_every": 2, "valid_decode": 2, **training}
    return seqloom.train(
        "translate",
        data,
        output=output,
        model="gru",
        size="tiny",
        training=settings,
        valid="20%",
        quiet=True,
        device="cpu",
        resume=resume,
    )


@pytest.fixture
def hostile(small, tmp_path):
    """A copy of the run, and somebody's file and folder outside."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(small / "run", run)
    (outside / "step-000000001").mkdir(parents=True)
    for name in ("victim", "step-000000001/kept", ".x.tmp", ".y.old"):
        (outside / name).write_text("precious\n")
    return run, outside


def stood(outside):
    return {str(path.relative_to(outside)): path.is_file() and path.read_text() for path in outside.rglob("*")}


def linked(run, name, target):
    place = run / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def uses(small, run):
    return {
        "resume": lambda: train(small / "words.tsv", run, resume=True, max_steps=4),
        "load": lambda: seqloom.load(run, device="cpu"),
        "report": lambda: write_report([run]),
        "from": lambda: seqloom.train("translate", small / "words.tsv", output=f"{run}-2", start=run, quiet=True),
    }


@pytest.mark.parametrize("name", [*OURS, *FOLDERS])
def test_links_that_lead_out_are_refused(small, hostile, name):
    run, outside = hostile
    before = stood(outside)
    linked(run, name, outside if name in FOLDERS else outside / "victim")
    for use in uses(small, run).values():
        with pytest.raises(SeqloomError, match="link that leads out") as caught:
            use()
        assert str(run / name) in str(caught.value)
    assert stood(outside) == before


@pytest.mark.parametrize("name", ["model.safetensors", "source.json", "metrics.jsonl", "config.yaml", ".lock"])
def test_what_is_no_file_is_refused_at_once(small, hostile, name):
    run, _ = hostile
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for use in uses(small, run).values():
        with pytest.raises(SeqloomError, match="is a FIFO, not a file"):
            use()
    (run / name).unlink()
    (run / name).symlink_to("/dev/null")
    with pytest.raises(SeqloomError, match="link that leads out"):
        seqloom.load(run, device="cpu")


def test_a_socket_is_refused(hostile, monkeypatch):
    run, _ = hostile
    monkeypatch.chdir(run)
    (run / "env.json").unlink()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("env.json")
        with pytest.raises(SeqloomError, match="is a socket, not a file"):
            configs.load(run)


def test_a_new_run_does_not_follow_what_waits_in_its_folder(small, hostile):
    run, outside = hostile
    before = stood(outside)
    for name in (".lock", "metrics.jsonl", "checkpoints"):
        fresh = run.with_name(f"new-{name}")
        fresh.mkdir()
        (fresh / name).symlink_to(outside if name == "checkpoints" else outside / "victim")
        with pytest.raises(SeqloomError, match="link that leads out"):
            train(small / "words.tsv", fresh, max_steps=1)
    assert stood(outside) == before


def test_lock_and_journal_never_follow_a_link(tmp_path):
    """Not even one that was put there after the folder was looked at."""
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    (run / "metrics.jsonl").symlink_to(victim)
    journal = MetricsLog(run / "metrics.jsonl")
    for use in (lambda: locked(run).__enter__(), lambda: journal.add({}), lambda: journal.cut_back(0), journal.sync):
        with pytest.raises(SeqloomError, match="is a link, not a file"):
            use()
    assert victim.read_text() == "precious\n"


def test_lock_and_journal_never_wait_for_a_fifo(tmp_path):
    """Not even for one that was put there after the folder was looked at."""
    for name in (".lock", "metrics.jsonl"):
        os.mkfifo(tmp_path / name)
    journal = MetricsLog(tmp_path / "metrics.jsonl")
    for use in (lambda: locked(tmp_path).__enter__(), journal.lines, journal.sync, lambda: journal.cut_back(0)):
        with within(1), pytest.raises(SeqloomError, match="is a FIFO, not a file"):
            use()
    with within(1), pytest.raises(SeqloomError, match="could not be written"):  # nobody reads
        journal.add({})


def test_tidying_leaves_alone_what_links_lead_to(hostile):
    run, outside = hostile
    before = stood(outside)
    (run / ".a.tmp").symlink_to(outside)
    (run / ".b.old").symlink_to(outside)
    tidy(run)
    assert stood(outside) == before
    assert not (run / ".a.tmp").is_symlink(), "the link itself is what was left"


def test_weights_in_a_fifo_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(SeqloomError, match="is a FIFO, not a file"):
        read_tensors(tmp_path / "model.safetensors")


def test_links_of_the_user_stay_as_they_were(small, hostile):
    """The run's folder may be a link, other things in it are the user's, and links within the folder lead nowhere."""
    run, outside = hostile
    (run / "notes").symlink_to(outside)
    (run / "kept").mkdir()
    (run / "data.json").rename(run / "kept" / "data.json")
    (run / "data.json").symlink_to("kept/data.json")
    link = run.with_name("link")
    link.symlink_to(run)
    assert train(small / "words.tsv", link, resume=True, max_steps=4).step == 4
    assert link.is_symlink()
    assert (run / "notes").is_symlink()
    assert len(seqloom.load(link, device="cpu").predict(["abc"])) == 1
    assert "precious" in (outside / "victim").read_text()


def test_a_resume_through_a_link_is_the_same(small, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(small / "run", tmp_path / name)
    (tmp_path / "link").symlink_to("two")
    for output in ("one", "link"):
        train(small / "words.tsv", tmp_path / output, resume=True, max_steps=4)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
