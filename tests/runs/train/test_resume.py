"""Exact resume: a training killed at any moment ends like one never killed, to the last bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seqloom.runs.folder.metrics_log import TIMING_KEYS
from seqloom.training.checkpoint import checkpoint_folders
from tests.conftest import words, write_pairs
from tests.processes import finish, start

STEPS = 60
AVERAGE = ("--average", "2", "--set", "training.valid_every=12")
MODELS = {
    "lstm-attention": [
        *AVERAGE,
        "--set",
        "encoder.dim=64",
        "--set",
        "encoder.layers=2",
        "--set",
        "encoder.dropout=0.3",
    ],
    "transformer": [*AVERAGE, "--set", "encoder.dropout=0.2", "--set", "decoder.dropout=0.2", "--precision", "fp32"],
    # So high a rate that scores get worse at once: one kill finds it before the trigger, one after.
    "gru-attention": [
        *(
            "--optimiser",
            "asgd",
            "--set",
            "training.asgd_patience=2",
            "--set",
            "training.valid_every=6",
            "--rate",
            "10",
        ),
        *("--schedule", "constant", "--set", "training.warmup=1", "--set", "training.select=loss"),
    ],
}


def command(model: str, data: Path, output: Path) -> list[str]:
    return [
        *("train", "translate", str(data), "--model", model, "--size", "tiny", "--target-tokens", "words"),
        *("--output", str(output), "--resume"),
        *("--max-steps", str(STEPS), "--batch-rows", "32", "--valid", "10%", "--device", "cpu"),
        *("--set", "training.log_every=1", "--set", "training.save_every=4"),
        *("--set", "training.valid_decode=16", "--quiet", *MODELS[model]),
    ]


def train_with_kills(model: str, data: Path, output: Path, draw: random.Random, moments: list[str]) -> list[str]:
    """Kill at each moment in turn, then let it finish, in an interpreter of its own that hashes otherwise. Gives the
    kills that found the training alive."""
    done = []
    for number, moment in enumerate(moments):
        process = start(command(model, data, output))
        goal = STEPS * (number + 1) // (len(moments) + 1)  # spread over the whole training
        if wait_for(process, output, moment, goal, draw):
            process.kill()
            done.append(moment)
        process.join()
    subprocess.run([sys.executable, "-m", "seqloom", *command(model, data, output)], check=True)
    return done


def wait_for(process: ForkServerProcess, output: Path, moment: str, goal: int, draw: random.Random) -> bool:
    """Until the training is past step `goal`, and then until it writes a checkpoint, or for a random while."""
    journal, checkpoints = output / "metrics.jsonl", output / "checkpoints"
    while process.is_alive() and (not journal.exists() or journal.read_text().count('"learning_rate"') < goal):
        time.sleep(0.002)
    deadline = time.monotonic() + draw.uniform(0, 0.15)
    while process.is_alive():
        if moment == "saving" and checkpoints.exists() and being_written(checkpoints):
            return True
        if moment == "any" and time.monotonic() > deadline:
            return True
    return False


def being_written(checkpoints: Path) -> bool:
    try:
        return any(checkpoints.glob(".*.tmp/*"))
    except FileNotFoundError:  # renamed while we looked: it was
        return True


def same(one: Path, other: Path) -> None:
    last, expected = checkpoint_folders(one / "checkpoints")[-1], checkpoint_folders(other / "checkpoints")[-1]
    assert last.name == expected.name == f"step-{STEPS:09d}"
    for name in ("weights.safetensors", "training.safetensors"):
        a, b = load_file(last / name), load_file(expected / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert lines(one) == lines(other)


def lines(folder: Path) -> list[dict]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in found if "learning_rate" in line]
    assert steps == list(range(1, STEPS + 1)), "a gap or a repeat"
    return [{key: value for key, value in line.items() if key not in TIMING_KEYS} for line in found]


def check(model: str, folder: Path, moments: list[str], seed: int) -> list[str]:
    data = write_pairs(folder / "words.tsv", words(400))
    finish(command(model, data, folder / "undisturbed"))
    done = train_with_kills(model, data, folder / "killed", random.Random(seed), moments)
    same(folder / "killed", folder / "undisturbed")
    return done


@pytest.mark.parametrize("model", [model for model in MODELS if model != "lstm-attention"])  # that one among the slow
def test_killed_and_resumed_is_bit_identical(model, tmp_path):
    done = check(model, tmp_path, ["any", "saving"], seed=3)
    assert done == ["any", "saving"]
    begun = [line["averaging"] for line in lines(tmp_path / "killed") if "averaging" in line]
    assert begun == ([30] if model == "gru-attention" else [])  # the kills come after steps 20 and 40


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_ten_kills_of_which_some_while_saving(model, tmp_path):
    """Three models, ten kills each: thirty in all, and nine of them while it saves."""
    moments = ["any", "saving", "any", "any", "saving", "any", "saving", "any", "any", "any"]
    done = check(model, tmp_path, moments, seed=int(os.environ.get("SEED", "11")))
    print(f"{model}: {len(done)} kills found it alive, {done.count('saving')} while it saved")
    assert len(done) == 10
    assert done.count("saving") == 3
