"""Starting from a run of another task, and what cannot be done with models that are counted."""

from __future__ import annotations

import pytest

import seqloom
from seqloom.runs.folder.metrics_log import MetricsLog
from seqloom.runs.progress import Silent
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import dry_run
from seqloom.training.checkpoint import read_tensors

TEXTS = [f"{good} {thing} {i}" for i in range(30) for good, thing in (("fine", "film"), ("poor", "song"))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (folder / "labelled.tsv").write_text("".join(f"{text}\t{text.split()[0]}\n" for text in TEXTS))
    return folder


@pytest.fixture(scope="module")
def mask(files):
    output = files / "mask"
    seqloom.train("mask", files / "texts.txt", output=output, size="tiny", training={"max_steps": 2}, quiet=True)
    return output


def test_a_run_that_was_killed_before_its_first_checkpoint_takes_over_again(files, mask, tmp_path):
    """Its folder says where it came from, and that was another task."""
    job = {"output": tmp_path / "run", "training": {"max_steps": 2, "freeze": "source,encoder"}, "quiet": True}
    whole = seqloom.train("classify", files / "labelled.tsv", start=mask, **{**job, "output": tmp_path / "whole"})
    run = seqloom.train("classify", files / "labelled.tsv", start=mask, **job)
    for folder in (run.folder / "checkpoints").iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    seqloom.train("classify", files / "labelled.tsv", resume=True, **job)
    ours, theirs = (read_tensors(one.folder / "model.safetensors") for one in (run, whole))
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert ours["source.weight"].equal(read_tensors(mask / "model.safetensors")["source.weight"])


def test_vectors_and_a_run_would_both_fill_the_embedding(files, mask, tmp_path):
    with pytest.raises(seqloom.SeqloomError, match="brings the source's embedding: leave --vectors out"):
        seqloom.train(
            "classify", files / "labelled.tsv", start=mask, output=tmp_path / "x", training={"vectors": str(mask)}
        )


def test_what_is_counted_is_not_rehearsed(files):
    job = Job(task="classify", files=files / "labelled.tsv", output="x", model="majority")
    with pytest.raises(seqloom.SeqloomError, match="majority is counted, not trained step by step"):
        dry_run(job, Silent())


def test_a_journal_may_hold_any_line_end_but_one(tmp_path):
    journal = MetricsLog(tmp_path / "metrics.jsonl", None)
    journal.add({"sample": "a\u2028b\x85c"})
    assert journal.lines() == [{"sample": "a\u2028b\x85c"}]
