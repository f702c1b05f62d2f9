"""Cross-validation: train once for each fold, on all other folds, and validate on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, nan
from statistics import fmean, stdev
from typing import Any

from seqloom.errors import SettingError
from seqloom.files import write_json
from seqloom.options import without_none
from seqloom.reporting.pages.comparison import GroupResult
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import REPORT, write_report
from seqloom.runs.many.parallel_jobs import NamedJob, run_parallel
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
        """The lines that the terminal shows."""
        if not self.scores:
            return []
        width = max([12, *map(len, self.scores)])
        scores = [f"  {name:<{width}} {mean:8.2f} ± {deviation:.2f}" for name, (mean, deviation) in self.scores.items()]
        return [f"{len(self.runs)} folds, mean and standard deviation", *scores]

    def to_json(self) -> dict[str, Any]:
        return {
            "folds": [_fold_json(run) for run in self.runs],
            "scores": {name: {"mean": mean, "deviation": deviation} for name, (mean, deviation) in self.scores.items()},
        }


def cross_validate(job: Job, count: int, kind: str = "default", parallel: int = 1) -> Folds:
    """Train `count` times into fold-1, fold-2 … of the job's folder; `kind` of progress: see `progress`.

    A source goes to a fold by its hash, so the same data give the same folds. `parallel`: how many folds are trained
    at the same time, each in a process of its own. A resumed cross-validation trains only the folds that are not done.
    """
    if not 2 <= count <= MOST_FOLDS:
        raise SettingError(f"--folds takes 2 or more and at most {MOST_FOLDS:,}, here {count}")
    if job.valid is not None:
        raise SettingError("--folds and --valid exclude one another: every fold is held out once")
    if job.test is not None:
        raise SettingError("--folds and --test exclude one another: every fold is scored on the part left out")
    configs.check_folder(job.folder)
    numbers = range(1, count + 1)
    jobs = [replace(job, output=job.folder / f"fold-{number}", valid=f"fold {number}/{count}") for number in numbers]
    if started := [one for one in jobs if (one.folder / configs.FILE).exists()]:
        jobs = _with_saved_choices(jobs, configs.load(started[0].folder))
    if parallel > 1:
        results, signal = run_parallel([NamedJob(one.folder.name, one) for one in jobs], parallel, kind)
        runs = [result.run for result in results]
    else:
        runs, signal = _in_turn(jobs, kind)
    if signal is not None:
        return Folds(runs, {}, signal)
    folds = Folds(runs, _mean_and_deviation([run.best["scores"] for run in runs if run.best]))
    if Launch.of().rank == 0:
        write_json(job.folder / FILE, folds.to_json())
        page = write_report([run.folder for run in runs], job.folder / REPORT, GroupResult(folds=folds.scores))
        progress(kind).note(f"all folds: {job.folder}; their report: {page}")
    return folds


def _with_saved_choices(jobs: list[Job], saved: Mapping[str, Any]) -> list[Job]:
    """The jobs with the settings that were chosen for the first fold by its data, so that all folds agree."""
    sizes = {name: saved["training"].get(name) for name in ("batch_rows", "batch_tokens")}
    return [
        replace(one, data={**saved["data"], **without_none(one.data)}, training={**sizes, **without_none(one.training)})
        for one in jobs
    ]


def _in_turn(jobs: list[Job], kind: str) -> tuple[list[Run], int | None]:
    runs: list[Run] = []
    for number, job in enumerate(jobs, 1):
        shown = progress(kind) if Launch.of().rank == 0 else Silent()
        shown.note(f"fold {number} of {len(jobs)}")
        runs.append(run_job(job, shown))
        if runs[-1].signal is not None:
            return runs, runs[-1].signal
    return runs, None


def _fold_json(run: Run) -> dict[str, Any]:
    """A fold for folds.json, which cannot hold NaN."""
    best = run.best or {"step": None, "scores": {}}
    scores = {name: value if isfinite(value) else None for name, value in best["scores"].items()}
    return {"folder": run.folder.name, "step": best["step"], "scores": scores}


def _mean_and_deviation(scores: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every score that is finite in all folds."""
    if len(scores) < 2:
        return {}
    names = [name for name in scores[0] if all(isfinite(one.get(name, nan)) for one in scores)]
    return {name: (fmean(one[name] for one in scores), stdev(one[name] for one in scores)) for name in names}
