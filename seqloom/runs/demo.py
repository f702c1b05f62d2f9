"""The demo: an attentive GRU learns English pronunciation on two CPU cores in about two minutes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from seqloom.data.datasets import catalog
from seqloom.errors import SeqloomError
from seqloom.runs import config as configs
from seqloom.runs.train.train import Run, train
from seqloom.tasks.shared.evaluation import Evaluation
from seqloom.tasks.shared.task import Model

WORDS = ("through", "knowledge", "seqloom", "philharmonic", "thoughtfulness")
STEPS = 1400


@dataclass(frozen=True)
class Demo:
    run: Run
    model: Model
    scores: Evaluation


def demo(output: Path, steps: int = STEPS, quiet: bool = False) -> Demo | None:
    """Train on CMUdict and score on test words; None if interrupted."""
    training, valid, test = (catalog.files("cmudict", split)[0] for split in ("train", "valid", "test"))
    _remove_earlier_demo(output, training)
    run = train(
        "translate",
        training,
        output=output,
        valid=valid,
        model="gru-attention",
        size="tiny",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": steps, "batch_rows": 256, "learning_rate": 4e-3, "valid_every": max(steps // 2, 1)},
        device="cpu",
        quiet=quiet,
    )
    if run.signal is not None:
        return None
    model = run.load("cpu")
    return Demo(run, model, model.evaluate(test, metrics=["per", "exact_match"], together=True))


def _remove_earlier_demo(output: Path, training: Path) -> None:
    """Make room for the run; anything but an earlier demo is an error."""
    if not output.exists():
        return
    if not output.is_dir() or configs.load(output).get("inputs", {}).get("train") != [str(training)]:
        raise SeqloomError(f"{output}: is there already and is no demo run; name another --output")
    shutil.rmtree(output)
