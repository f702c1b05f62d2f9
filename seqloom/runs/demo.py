"""The demo: an attentive GRU learns English pronunciation on two CPU cores in about two minutes."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from seqloom.data.corpus import default_cache
from seqloom.data.embedded import cmudict
from seqloom.errors import SeqloomError
from seqloom.files import write_atomic
from seqloom.runs import config as configs
from seqloom.runs.train import Run, train
from seqloom.runs.translator import Evaluation, Translator

WORDS = ("through", "knowledge", "seqloom", "philharmonic", "thoughtfulness")
STEPS = 1400


@dataclass(frozen=True)
class Demo:
    run: Run
    model: Translator
    scores: Evaluation


def demo(output: Path, steps: int = STEPS, quiet: bool = False) -> Demo | None:
    """Train on CMUdict, score on words never seen, and hand everything over to be shown; None if interrupted."""
    training, test = _files()
    _make_way(output, training)
    run = train(
        "translate",
        training,
        output=output,
        valid="2%",
        model="gru-attention",
        size="tiny",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": steps, "batch_rows": 256, "rate": 4e-3, "valid_every": max(steps // 2, 1)},
        device="cpu",
        quiet=quiet,
    )
    if run.signal is not None:
        return None
    model = run.load("cpu")
    return Demo(run, model, model.evaluate(test, metrics=["per", "exact_match"], together=True))


def _files() -> tuple[Path, Path]:
    """train.tsv and test.tsv; a word's hash says where it goes, so every run has the same 2 % for testing."""
    folder = default_cache() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for word, sounds in cmudict():
        held = hashlib.blake2b(word.encode(), digest_size=2).digest() < b"\x05\x1f"
        lines["test" if held else "train"].append(f"{word}\t{sounds}\n")
    for name, chosen in lines.items():
        write_atomic(folder / f"{name}.tsv", "".join(chosen))
    return folder / "train.tsv", folder / "test.tsv"


def _make_way(output: Path, training: Path) -> None:
    """An earlier demo may be replaced; anything else may not."""
    if not output.exists():
        return
    if not output.is_dir() or configs.load(output).get("inputs", {}).get("train") != [str(training)]:
        raise SeqloomError(f"{output}: is there already and is no demo run; name another --output")
    shutil.rmtree(output)
