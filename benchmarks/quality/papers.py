"""Scores beside the literature: recipes trained side by side, scored on their test data, one table at the end.

    python benchmarks/quality/papers.py --folder runs/papers --jobs 2 --seconds 580 --only cmudict-ensemble
    python benchmarks/quality/papers.py --folder runs/trial --only sigmorphon --set training.r_drop=3
    python benchmarks/quality/papers.py --score papers.jsonl.gz

Every training is a process of its own, `seqloom train --recipe NAME` with a seed; members of an ensemble that are also
a row of their own are trained once. A training keeps a GPU busy by itself: two at once use the time in which one reads
or scores, more of them only wait for each other. After --seconds what still trains is asked to save and end, and the
same command goes on from there. All that came of it stands in papers.jsonl.gz, predictions too: where a scorer is
missing (BLEU needs sacrebleu), --score scores them elsewhere. Which rows, and what is wanted of them: published.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from published import ROWS, Goal, Row
from scoring import answered, scores_of

from seqloom.files import write_atomic, write_json
from seqloom.runs import config
from seqloom.runs.folder import ensembles
from seqloom.runs.progress import progress
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes import run_recipe
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import run_job
from seqloom.setting_names import fold_of

GRACE = 40.0  # seconds in which a training saves and ends
ASKED = 3  # the exit status of a training that was asked to end


@dataclass(frozen=True)
class Piece:
    """One training, or several together where it `needs` others. Its key names its folder."""

    key: str
    recipe: Recipe
    job: Job
    needs: tuple[str, ...] = ()
    share: float = 1.0


def pieces_of(
    rows: Sequence[Row], given: Mapping[str, Any] | None = None, only: Sequence[Row] | None = None
) -> dict[str, list[Piece]]:
    """By row: its trainings, of an ensemble at last all together. Trainings that are alike in all are one. `given`:
    settings besides those of the rows, or of `only` some of them."""
    known: dict[str, Piece] = {}

    def one(recipe: Recipe, row: Row, seed: int, name: str) -> Piece:
        settings = {**row.settings, **(given or {} if only is None or row in only else {})}
        plain = Job(task="", files=[], output="", training={"seed": seed}, settings=settings)
        job = run_recipe.job_of(recipe, plain)
        made = config.compose(job.task, job.model, job.size, job.data, job.training, job.settings)
        alike = json.dumps([made, str(job.files), str(job.valid)], sort_keys=True, default=str)
        return known.setdefault(alike, Piece(name, recipe, job, share=row.share))

    found: dict[str, list[Piece]] = {}
    for row in sorted(rows, key=lambda row: bool(recipes.load(row.recipe).members)):
        recipe, name = recipes.load(row.recipe), row.key.replace(", ", "-")
        if not recipe.members:
            found[row.key] = [one(recipe, row, seed, f"{name}-{seed}") for seed in row.seeds]
            continue
        parts = [
            one(part, row, part.training["seed"], f"{name}-{number}") for number, part in enumerate(recipe.parts(), 1)
        ]
        whole = Job(task=recipe.task, files=recipe.train, output="", data=recipe.data)
        found[row.key] = [*parts, Piece(name, recipe, whole, tuple(part.key for part in parts))]
    return found


def chosen(found: dict[str, list[Piece]], rows: Sequence[Row], seeds: int | None) -> dict[str, Piece]:
    """By key, those of some rows; an ensemble needs all of its own."""
    several = [found[row.key] if found[row.key][-1].needs else found[row.key][:seeds] for row in rows]
    return {piece.key: piece for one in several for piece in one}


def work(piece: Piece, args: argparse.Namespace) -> None:
    """In a process of its own: train, answer the test data, score, and leave what came of it in KEY.json."""
    folder, started = args.folder / piece.key, time.monotonic()
    told: dict[str, Any] = {"key": piece.key, "recipe": piece.recipe.name, "task": piece.recipe.task}
    if piece.needs:
        folder.mkdir(exist_ok=True)
        ensembles.save(folder, [f"../{key}" for key in piece.needs])
    else:
        run = run_job(limited(piece, folder, args), progress("verbose"))
        if run.signal is not None:
            sys.exit(ASKED)
        lines = [line for line in run.history() if "seconds" in line and "tokens" in line]
        told |= {"steps": run.step, "epochs": lines[-1]["epoch"] + 1 if lines else None, "valid": run.best}
        told |= {"seconds": lines[-1]["seconds"] if lines else None}
    told |= answered(piece.recipe, folder, args.tests, args.device)
    told["whole"] = round(time.monotonic() - started, 1)
    write_json(outcome(args.folder, piece.key), told | scores_of({**told, **facts(piece)}))


def limited(piece: Piece, folder: Path, args: argparse.Namespace) -> Job:
    """The job in its folder, within the time and, for a trial, the steps and the data that are allowed."""
    from importlib.util import find_spec

    job, training = piece.job, {**piece.job.training, "keep": 1}  # many runs on one disk
    if args.time:
        training["time"] = args.time * piece.share
    if args.steps:
        training |= {"max_steps": args.steps, "valid_every": args.steps, "log_every": 1, "valid_decode": 20}
        training["precision"] = "fp32"
    if training.get("select") in ("bleu", "chrf") and find_spec("sacrebleu") is None:
        training["select"] = "per"
    data = {**job.data, **({"limit": args.limit} if args.limit else {})}
    again = (folder / config.FILE).exists()
    return replace(job, output=folder, training=training, data=data, device=args.device, resume=again)


def facts(piece: Piece) -> dict[str, Any]:
    """What scoring must know of a piece."""
    recipe = piece.recipe
    fold = fold_of(piece.job.settings.get("data.lowercase", recipe.data.get("lowercase", False)))
    return {"test": run_recipe.test_files(recipe), "fold": fold, "evaluate": recipe.evaluate}


def outcome(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


class Pool:
    """So many processes at once, those first that were named first, each as soon as what it needs is there. `keep`:
    called whenever one is done, so that nothing is lost where the whole is cut off."""

    def __init__(self, pieces: Iterable[Piece], args: argparse.Namespace, keep: Callable[[], object]) -> None:
        self.waiting, self.args, self.keep = list(pieces), args, keep
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.failed: dict[str, str] = {}
        self.asked = False

    def run(self) -> None:
        deadline = time.monotonic() + self.args.seconds
        while self.waiting or self.running:
            late = time.monotonic() > deadline - GRACE
            if late and not self.asked:
                self._ask()
            for key, process in list(self.running.items()):
                if process.poll() is not None:
                    self._ended(key, process.returncode)
            self._start()
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        for process in self.running.values():
            process.kill()

    def _start(self) -> None:
        for piece in [] if self.asked else list(self.waiting):
            if any(key in self.failed for key in piece.needs):
                self.waiting.remove(piece)
                self.failed[piece.key] = "a member is missing"
            elif len(self.running) < self.args.jobs and self._ready(piece):
                self.waiting.remove(piece)
                if not outcome(self.args.folder, piece.key).exists():
                    self.running[piece.key] = self._process(piece)

    def _ready(self, piece: Piece) -> bool:
        return all(outcome(self.args.folder, key).exists() for key in piece.needs)

    def _process(self, piece: Piece) -> subprocess.Popen[bytes]:
        print(f"{piece.key}: starts", flush=True)
        words = [sys.executable, __file__, *self.args.words, "--piece", piece.key]
        log = (self.args.folder / f"{piece.key}.log").open("ab")
        with log:
            environment = {"OMP_NUM_THREADS": "1", **os.environ}
            return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def _ended(self, key: str, status: int) -> None:
        del self.running[key]
        said = (self.args.folder / f"{key}.log").read_text(errors="replace").splitlines()[-1:]
        ends = {0: "done", ASKED: "saved, to go on", -signal.SIGTERM: "trained, to be scored"}
        how = ends.get(status, f"failed ({status}): {' '.join(said)}")
        if status:
            self.failed[key] = how
        else:
            self.keep()
        print(f"{key}: {how}", flush=True)

    def _ask(self) -> None:
        self.asked, self.waiting = True, []
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)


def table(found: dict[str, list[Piece]], rows: Sequence[Row], outcomes: Sequence[dict[str, Any]]) -> str:
    """A line for each score of each row: the mean over seeds, and each of them."""
    by_key = {one["key"]: one for one in outcomes}
    lines = ["| row | score | ours | must | aim | published | training |", "|---|---|---|---:|---:|---|---|"]
    for row in rows:
        pieces = found[row.key][-1:] if found[row.key][-1].needs else found[row.key]
        have = [by_key[piece.key] for piece in pieces if piece.key in by_key]
        lines += [_line(row, goal, have) for goal in row.goals]
    return "\n".join([*lines, ""])


def _line(row: Row, goal: Goal, have: Sequence[dict[str, Any]]) -> str:
    values = [goal.shown(one["scores"][goal.metric]) for one in have if goal.metric in one.get("scores", {})]
    ours = "–"
    if values:
        mean = sum(values) / len(values)
        each = f" ({' '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
        ours = f"{mean:.{3 if goal.name == 'nats' else 2}f}{each}, {goal.verdict(mean)}"
        beside = [
            f"{name} {one['scores'][name]:.2f}" for one in have for name in ("sacrebleu",) if name in one["scores"]
        ]
        ours += f"; {', '.join(beside)}" if beside else ""
    spent = [f"{one['seconds']:.0f} s, {one['epochs']} epochs" for one in have if one.get("seconds") is not None]
    aim = "–" if goal.aim is None else f"{goal.aim:g}"
    return f"| {row.key} | {goal.name} | {ours} | {goal.must:g} | {aim} | {goal.published} | {'; '.join(spent)} |"


def saved(path: Path, outcomes: Sequence[dict[str, Any]]) -> None:
    write_atomic(path, gzip.compress("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in outcomes).encode()))


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/papers"), help="for runs, logs and what comes of them"
    )
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows (default: those with no score on record)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="for the whole command; what is not done is saved")
    parser.add_argument("--time", type=float, help="seconds of training for each, in which its rate is annealed")
    parser.add_argument("--seeds", type=int, help="at most so many of each row")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a trial: a setting besides the recipe's"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, help="a trial: so many updates of each")
    parser.add_argument("--limit", type=int, help="a trial: so many training examples")
    parser.add_argument("--tests", type=int, help="a trial: so many test examples")
    parser.add_argument("--output", type=Path, help="where papers.jsonl.gz goes (default: the folder)")
    parser.add_argument(
        "--score", type=Path, nargs="+", metavar="FILE", help="score each papers.jsonl.gz again; nothing is trained"
    )
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    for name in args.only or ():
        if name not in {row.key for row in ROWS}:
            parser.error(f"no row {name!r}; there are: {'; '.join(row.key for row in ROWS)}")
    for word in args.set:
        if "=" not in word:
            parser.error(f"--set takes NAME=VALUE, not {word!r}")
    args.words = sys.argv[1:] if words is None else words
    return args


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    return {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in words)}


def main(words: list[str] | None = None) -> None:
    args = arguments(words)
    by_key = {row.key: row for row in ROWS}
    rows = [by_key[key] for key in args.only] if args.only else missing()
    found = pieces_of(ROWS, settings_of(args.set), rows)
    pieces = chosen(found, rows, args.seeds)
    if args.piece:
        work(pieces[args.piece], args)
    elif args.score:
        outcomes = [one for file in args.score for one in scored_again(file, chosen(found, ROWS, None))]
        have = {one["key"] for one in outcomes}
        print(table(found, [row for row in ROWS if have & {piece.key for piece in found[row.key]}], outcomes))
    else:
        for folder in (args.folder, args.output or args.folder):
            folder.mkdir(parents=True, exist_ok=True)

        def keep() -> list[dict[str, Any]]:
            files = [outcome(args.folder, key) for key in pieces]
            outcomes = [json.loads(file.read_bytes()) for file in files if file.exists()]
            saved((args.output or args.folder) / "papers.jsonl.gz", outcomes)
            return outcomes

        Pool(pieces.values(), args, keep).run()
        print(table(found, rows, keep()))


def scored_again(file: Path, pieces: dict[str, Piece]) -> list[dict[str, Any]]:
    outcomes = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    outcomes = [one | scores_of({**one, **facts(pieces[one["key"]])}) for one in outcomes]
    saved(file, outcomes)
    return outcomes


def missing() -> list[Row]:
    return [row for row in ROWS if not recipes.load(row.recipe).reached]


if __name__ == "__main__":
    main()
