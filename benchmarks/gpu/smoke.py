"""Every preset of every task, with its options, for a few steps on a device: trained, gone on with, evaluated, used.

`python benchmarks/gpu/smoke.py` prints what failed and a Markdown table of what was run; it ends with status 1 if
anything failed. Presets and options are read from the product's own tables, so that a new one is tried without a change
here. Loss must be finite and a prediction must come for every line asked.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILES = {
    "translate": "pairs.tsv",
    "classify": "labelled.tsv",
    "tag": "tagged.conll",
    "generate": "text.txt",
    "mask": "text.txt",
    "vectors": "text.txt",
    "table": "table.csv",
}
DATA = {"translate": {"target_tokens": "words"}, "generate": {"tokens": "chars"}}
AGREE = ("translate", "classify", "tag", "table")
OPTIONS: dict[str, dict[str, Any]] = {
    "muon": {"optimizer": "muon"},
    "sgd": {"optimizer": "sgd"},
    "running mean": {"ema": 0.9},
    "accumulated": {"accumulate": 3},
    "averaged": {"average": 2, "save_every": 4},
    "smoothed": {"smoothing": 0.1},
    "not recorded": {"capture": "off"},
    "by tokens": {"batch_tokens": 400},
}
COUNTED = ("majority", "ngram")


@dataclass(frozen=True)
class Trial:
    task: str
    model: str
    precision: str
    what: str = "as it is"
    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.task} {self.model} {self.precision}, {self.what}"


def write_data(folder: Path) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 8))) for _ in range(300)]

    def lines(name: str, found: Iterator[str]) -> None:
        (folder / name).write_text("".join(found), encoding="utf-8")

    def sentence() -> list[str]:
        return draw.choices(words, k=draw.randint(3, 12))

    lines("pairs.tsv", (f"{word}\t{' '.join(word[::-1].upper())}\n" for word in words for _ in range(2)))
    lines("labelled.tsv", (f"{' '.join(sentence())}\t{draw.choice('xy')}\n" for _ in range(800)))
    tags = ("O", "O", "B-X", "B-Y")
    lines("tagged.conll", ("".join(f"{w}\t{draw.choice(tags)}\n" for w in sentence()) + "\n" for _ in range(500)))
    lines("text.txt", (" ".join(draw.choices(words, k=9)) + ".\n" for _ in range(3000)))
    rows = (
        f"{draw.random():.3f},{draw.random():.3f},{draw.choice('uvw')},{draw.choice(('yes', 'no'))}\n"
        for _ in range(600)
    )
    lines("table.csv", iter(("a,b,kind,y\n", *rows)))


def trials() -> Iterator[Trial]:
    """Every preset in both precisions, then with every option in bf16, then every part of its tables."""
    from seqloom.tasks.presets import about

    for task in FILES:
        for model in about(task):
            for precision in ("fp32", "bf16"):
                yield Trial(task, model, precision)
                if task in AGREE and model not in COUNTED:
                    yield Trial(task, model, precision, "agreement", {"agreement": 2.0})
            for what, training in OPTIONS.items() if model not in COUNTED else ():
                yield Trial(task, model, "bf16", what, training)
    yield from parts()


def parts() -> Iterator[Trial]:
    """Every cell, score, position, mixer, norm, summary and encoder once, in the model that has a place for it."""
    from seqloom.models.encoders import ENCODERS
    from seqloom.parts.attention.scores import SCORES
    from seqloom.parts.layers.norm import NORMS
    from seqloom.parts.layers.pooling import POOLINGS
    from seqloom.parts.mixers.mixer_table import MIXERS
    from seqloom.parts.positions.position_table import POSITIONS
    from seqloom.parts.recurrent.cells import CELLS

    for name in SCORES:
        yield Trial("translate", "lstm-attention", "bf16", f"score {name}", settings={"decoder.score": name})
    yield Trial("translate", "lstm-attention", "bf16", "feeding", settings={"decoder.input_feeding": True})
    for name in POSITIONS:
        places = {"encoder.position": name, "decoder.position": name}
        yield Trial("translate", "transformer", "bf16", f"position {name}", settings=places)
    for name in MIXERS:
        yield Trial("classify", "transformer", "bf16", f"mixer {name}", settings={"encoder.mixer": name})
    for name in NORMS:
        yield Trial("classify", "transformer", "bf16", f"norm {name}", settings={"encoder.norm_kind": name})
    for name in POOLINGS:
        yield Trial("classify", "lstm", "bf16", f"summary {name}", settings={"summary": name})
    for name in ENCODERS:
        yield Trial("translate", "transformer", "bf16", f"encoder {name}", settings={"encoder": {"kind": name}})
    for name in CELLS:
        yield Trial("generate", "lstm", "bf16", f"cell {name}", settings={"encoder.cell": name})


def tried(trial: Trial, folder: str, number: int, device: str, steps: int) -> str:
    """Train, go on, evaluate, use; what went wrong in a line, or nothing."""
    import seqloom

    warnings.simplefilter("ignore")
    place = Path(folder)
    data = place / FILES[trial.task]
    training = {"max_steps": steps, "precision": trial.precision, "seed": 3, "valid_every": steps // 2, "log_every": 2}
    given: dict[str, Any] = {
        "output": place / f"run-{number}",
        "model": trial.model,
        "size": "tiny",
        "data": DATA.get(trial.task, {}),
        "settings": trial.settings,
        "cache": place / f"cache-{trial.task}",
        "device": device,
        "quiet": True,
    }
    if "batch_tokens" not in trial.training:
        training["batch_rows"] = 32
    try:
        run = seqloom.train(trial.task, str(data), training=training | trial.training, **given)
        if trial.model not in COUNTED:
            more = training | trial.training | {"max_steps": steps + 4}
            run = seqloom.train(trial.task, str(data), training=more, resume=True, **given)
            losses = [line["loss"] for line in run.history() if "loss" in line]
            if not losses or not all(map(math.isfinite, losses)):
                return f"losses {losses[:3]} …"
        used(run.load(device=device), trial.task, data)
    except seqloom.SeqloomError as error:
        return f"refused: {error}"
    except Exception as error:  # whatever it is, it is what is looked for
        if "CUDA" in str(error):  # leaves the process unusable
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error).splitlines()[0][:200]}"
    return ""


def used(model: Any, task: str, data: Path) -> None:
    """An evaluation of a few examples, and answers."""
    few = data.with_name(f"few-{os.getpid()}-{data.name}")
    sizes = {"table": 41, "tag": 300}
    few.write_text("".join(data.open(encoding="utf-8").readlines()[: sizes.get(task, 40)]), encoding="utf-8")
    if not model.evaluate(str(few)).metrics:
        raise RuntimeError("an evaluation without a score")
    if task in ("translate", "classify"):
        asked = ["abc def", "hgi", "j"]
        if len(model.predict(asked)) != len(asked):
            raise RuntimeError("answers are missing")


def table(done: list[tuple[Trial, str]]) -> list[str]:
    from seqloom.tasks.presets import about

    rows = ["| task | presets | trainings | failed |", "|---|---|---:|---:|"]
    count, bad = Counter(t.task for t, _ in done), Counter(t.task for t, error in done if error)
    return rows + [
        f"| {task} | {', '.join(about(task))} | {count[task]} | {bad[task]} |" for task in FILES if count[task]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="only these tasks")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--only", default="", help="trials whose name contains this")
    parser.add_argument("--list", action="store_true", help="say what would be tried")
    args = parser.parse_args()
    wanted = [t for t in trials() if (not args.tasks or t.task in args.tasks) and args.only in str(t)]
    if args.list:
        print(*wanted, len(wanted), sep="\n")
        return 0
    started, done = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
            asked = {pool.submit(tried, t, folder, i, args.device, args.steps): t for i, t in enumerate(wanted)}
            for future in as_completed(asked):
                error = f"died: {future.exception()}" if future.exception() else future.result()
                done.append((asked[future], error))
                if error:
                    print(f"FAILED {asked[future]}: {error}", flush=True)
    print(*table(done), "", sep="\n")
    bad = sum(bool(error) for _, error in done)
    print(f"{len(done)} trainings in {time.monotonic() - started:.0f} s, {bad} failed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
