"""Runs that average their weights: what is scored, kept and shown, what ends them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import seqloom
from seqloom.errors import SeqloomError
from seqloom.runs.progress import message_of
from seqloom.tasks.generate.task import TASK
from seqloom.training.checkpoint import checkpoint_folders
from tests.conftest import words

NOISY = {
    "optimizer": "asgd",
    "asgd_patience": 2,
    "learning_rate": 10.0,
    "schedule": "constant",
    "warmup": 1,
    "batch_rows": 32,
}


def train(data: Path, output: Path, valid: str | Path = "10%", **training) -> seqloom.Run:
    """So high a rate that scores get worse at once."""
    return seqloom.train(
        "translate",
        data,
        output=output,
        model="gru-attention",
        size="tiny",
        valid=valid,
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={**NOISY, "select": "loss", "max_steps": 60, "valid_every": 6, "valid_decode": 0, **training},
        device="cpu",
        quiet=True,
    )


def begun(run: seqloom.Run) -> list[int]:
    return [line["averaging"] for line in run.history() if "averaging" in line]


def validations(run: seqloom.Run) -> list[dict]:
    return [line for line in run.history() if "valid" in line]


@pytest.fixture(scope="module")
def averaged(pairs, tmp_path_factory) -> seqloom.Run:
    return train(pairs, tmp_path_factory.mktemp("averaged") / "run", keep_checkpoints=100)


@pytest.fixture(scope="module")
def plain(pairs, tmp_path_factory) -> seqloom.Run:
    settings = {"optimizer": "sgd", "momentum": 0.0, "keep_checkpoints": 100}
    return train(pairs, tmp_path_factory.mktemp("plain") / "run", **settings)


def test_the_training_goes_on_with_the_plain_weights(averaged, plain):
    steps = [folder.name for folder in checkpoint_folders(plain.folder / "checkpoints")]
    assert len(steps) == 10
    for step in steps:
        ours, theirs = (
            load_file(run.folder / "checkpoints" / step / "weights.safetensors") for run in (averaged, plain)
        )
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_from_the_trigger_on_the_mean_is_scored_and_kept(averaged, plain):
    [start] = begun(averaged)
    assert not begun(plain)
    for ours, theirs in zip(validations(averaged), validations(plain), strict=True):
        assert (ours["valid"] == theirs["valid"]) == (ours["step"] <= start), ours["step"]
    assert averaged.best is not None
    assert averaged.best["step"] > start
    last = averaged.folder / "checkpoints" / f"step-{averaged.best['step']:09d}"
    kept, state = load_file(averaged.folder / "model.safetensors"), load_file(last / "training.safetensors")
    assert all(torch.equal(kept[name], state[f"mean.model.{name}"]) for name in kept)
    values = json.loads((last / "training.json").read_text())
    assert values["averaging"]["count"] == averaged.best["step"] - start + 1
    assert len(values["averaging"]["scores"]) == start // 6


def test_a_running_mean_is_scored_and_kept_from_the_first_step(pairs, tmp_path):
    run = train(pairs, tmp_path / "run", optimizer="adamw", learning_rate=1e-2, ema=0.9, keep_checkpoints=100)
    assert run.best is not None
    best = run.folder / "checkpoints" / f"step-{run.best['step']:09d}"
    kept, state = load_file(run.folder / "model.safetensors"), load_file(best / "training.safetensors")
    assert all(torch.equal(kept[name], state[f"mean.model.{name}"]) for name in kept)
    plain = load_file(best / "weights.safetensors")
    assert not any(torch.equal(kept[name], plain[name]) for name in kept)


def test_a_running_mean_is_kept_where_nothing_is_held_out(pairs, tmp_path):
    run = train(pairs, tmp_path / "run", "0%", optimizer="adamw", learning_rate=1e-2, ema=0.9, max_steps=6)
    last = checkpoint_folders(run.folder / "checkpoints")[-1]
    kept, state = load_file(run.folder / "model.safetensors"), load_file(last / "training.safetensors")
    assert all(torch.equal(kept[name], state[f"mean.model.{name}"]) for name in kept)


def test_it_is_told(averaged):
    line = next(line for line in averaged.history() if "averaging" in line)
    assert message_of(line) == (
        f"step {line['averaging']}  averages from here on: the mean of the weights is what is scored and kept"
    )
    assert f"averaged from step {line['averaging']}" in (averaged.folder / "report.html").read_text()


def test_patience_counts_anew_from_the_trigger(pairs, tmp_path):
    """Three validations without a better one are enough to fire, and would be to stop: it goes on for three more.

    What is held out says nothing but the rarest sound: the better the training, the worse its score.
    """
    odd = tmp_path / "odd.tsv"
    odd.write_text("".join(f"{word}\tCH CH CH\n" for word in words(15, seed=9)))
    run = train(pairs, tmp_path / "run", valid=odd, patience=3, learning_rate=0.1)
    assert begun(run) == [24]
    assert [line["best"] for line in validations(run)] == [True, *[False] * 6]
    assert run.step == 42


def test_a_training_sample_is_of_the_mean(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat.\nthe dog sat on the log.\nwho sat on the frog?\n" * 12)
    training = {**NOISY, "learning_rate": 30.0, "batch_rows": 4, "max_steps": 24, "valid_every": 4}
    run = seqloom.train(
        *("generate", file), output=tmp_path / "run", model="awd-lstm", size="tiny", training=training, quiet=True
    )
    [start] = begun(run)
    assert run.best is not None
    assert run.best["step"] > start
    samples = {line["step"]: line["sample"] for line in run.history() if "sample" in line}
    assert samples[run.best["step"]] == TASK.training_sample(run.load("cpu"))


def test_what_cannot_be_is_refused(pairs, tmp_path):
    for wrong, told in (
        ({"average_checkpoints": 2}, "leave --average-checkpoints out"),
        ({"momentum": 0.5}, "asgd has no momentum"),
        ({"asgd_patience": 0}, "training.asgd_patience must be above 0"),
    ):
        with pytest.raises(SeqloomError, match=told):
            train(pairs, tmp_path / "run", **wrong)
    with pytest.raises(SeqloomError, match="there is no validation data; set --valid"):
        seqloom.train(
            *("translate", pairs), output=tmp_path / "run", valid=0.0, training={"optimizer": "asgd"}, quiet=True
        )
    assert not (tmp_path / "run").exists()
