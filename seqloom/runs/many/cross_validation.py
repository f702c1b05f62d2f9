"""Cross-validation: the same training on every fold but one, each time validated on the one left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, nan
from statistics import fmean, stdev
from typing import Any

from seqloom.errors import SettingError
from seqloom.files import write_json
from seqloom.options import set_values
from seqloom.reporting.pages.comparison import GroupResult
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import REPORT, write_report
from seqloom.runs.many.parallel_jobs import Part, run_parallel
from seqloom.runs.progress import Silent, progress
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import Run, run_job
from seqloom.runs.train.validation_split import MOST_FOLDS
from seqloom.training.distributed.processes import Launch

FILE = "folds.json"


@dataclass(frozen=True)
class Folds:
    """The runs, and the mean and standard deviation of each score over them (Stone 1974)."""

    runs: list[Run]
    scores: dict[str, tuple[float, float]]
    signal: int | None = None

    def lines(self) -> list[str]:
        """As the terminal shows them."""
        widest = max([12, *map(len, self.scores)])
        every = [f"{name:<{widest}} {mean:8.2f} ± {spread:.2f}" for name, (mean, spread) in self.scores.items()]
        return (
            [f"{len(self.runs)} folds, mean and standard deviation", *(f"  {line}" for line in every)] if every else []
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "folds": [_one(run) for run in self.runs],
            "scores": {name: {"mean": mean, "deviation": spread} for name, (mean, spread) in self.scores.items()},
        }


def cross_validate(job: Job, count: int, kind: str = "usual", at_once: int = 1) -> Folds:
    """Train `count` times into fold-1, fold-2 … of the job's folder; `kind` of progress: see `progress`.

    A source goes to a fold by its hash, so the same data give the same folds. `at_once`: so many are trained at a
    time, each in a process of its own. An interrupted cross-validation is resumed like a training: folds that are
    done are not trained again.
    """
    if not 2 <= count <= MOST_FOLDS:
        raise SettingError(f"--folds takes 2 or more and at most {MOST_FOLDS:,}, here {count}")
    if job.valid is not None:
        raise SettingError("--folds and --valid exclude one another: every fold is held out once")
    if job.test is not None:
        raise SettingError("--folds and --test exclude one another: every fold is scored on the part left out")
    configs.check_folder(job.folder)
    numbers = range(1, count + 1)
    jobs = [replace(job, output=job.folder / f"fold-{one}", valid=f"fold {one}/{count}") for one in numbers]
    if begun := [one for one in jobs if (one.folder / configs.FILE).exists()]:  # all are parts of one division
        jobs = _alike(jobs, configs.load(begun[0].folder))
    if at_once > 1:
        followed, signal = run_parallel([Part(one.folder.name, one) for one in jobs], at_once, kind)
        runs = [one.run for one in followed]
    else:
        runs, signal = _in_turn(jobs, kind)
    if signal is not None:
        return Folds(runs, {}, signal)
    found = Folds(runs, _spread([run.best["scores"] for run in runs if run.best]))
    if Launch.of().rank == 0:
        write_json(job.folder / FILE, found.to_json())
        page = write_report([run.folder for run in runs], job.folder / REPORT, GroupResult(folds=found.scores))
        progress(kind).note(f"all folds: {job.folder}; their report: {page}")
    return found


def _alike(jobs: list[Job], saved: Mapping[str, Any]) -> list[Job]:
    """The jobs with what was chosen for the first fold by its data, or by the rules of that time."""
    sizes = {name: saved["training"].get(name) for name in ("batch_rows", "batch_tokens")}
    return [
        replace(one, data={**saved["data"], **set_values(one.data)}, training={**sizes, **set_values(one.training)})
        for one in jobs
    ]


def _in_turn(jobs: list[Job], kind: str) -> tuple[list[Run], int | None]:
    runs: list[Run] = []
    for number, one in enumerate(jobs, 1):
        shown = progress(kind) if Launch.of().rank == 0 else Silent()
        shown.note(f"fold {number} of {len(jobs)}")
        runs.append(run_job(one, shown))
        if runs[-1].signal is not None:
            return runs, runs[-1].signal
    return runs, None


def _one(run: Run) -> dict[str, Any]:
    """JSON has no word for what is not a number."""
    best = run.best or {"step": None, "scores": {}}
    scores = {name: value if isfinite(value) else None for name, value in best["scores"].items()}
    return {"folder": run.folder.name, "step": best["step"], "scores": scores}


def _spread(scores: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every score that is a number in all folds."""
    if len(scores) < 2:
        return {}
    names = [name for name in scores[0] if all(isfinite(one.get(name, nan)) for one in scores)]
    return {name: (fmean(one[name] for one in scores), stdev(one[name] for one in scores)) for name in names}
