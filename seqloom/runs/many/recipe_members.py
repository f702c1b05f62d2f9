"""Trains the members of a recipe, each into its own folder, and scores them together as an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from seqloom.data.datasets import catalog
from seqloom.errors import SeqloomError
from seqloom.reporting.pages.comparison import GroupResult
from seqloom.runs import config as configs
from seqloom.runs.evaluate.report_files import REPORT, write_report
from seqloom.runs.folder import ensembles
from seqloom.runs.many.parallel_jobs import NamedJob, run_parallel
from seqloom.runs.progress import Silent, progress
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.recipes.run_recipe import (
    RecipeResult,
    comparison_lines,
    job_of,
    run_recipe,
    save_recipe,
    score_on_test,
)
from seqloom.runs.train.job import Job
from seqloom.runs.train.validation_split import with_fixed_seed
from seqloom.training.distributed.processes import Launch
from seqloom.training.settings import Training


@dataclass(frozen=True)
class Members:
    """The result of each member, and the scores of the ensemble; None if interrupted or without test data."""

    results: list[RecipeResult]
    scores: Mapping[str, Any] | None
    signal: int | None = None

    def lines(self, recipe: Recipe) -> list[str]:
        """Lines with the scores of each member, then of the ensemble."""
        if self.scores is None:
            return []
        wanted = recipe.evaluate.get("metrics") or list(self.scores["metrics"])
        alone = [(one.run.folder.name, one.scores["metrics"]) for one in self.results if one.scores]
        lines = [
            f"member {name}: {', '.join(f'{key} {_two_digits(scores[key])}' for key in wanted)}"
            for name, scores in alone
        ]
        first, *rest = comparison_lines(recipe, self.scores)
        return [*lines, f"{len(self.results)} members together, {first}", *rest]


def run_members(recipe: Recipe, job: Job, kind: str = "default", parallel: int = 1) -> Members:
    """Train the recipe's members into 1, 2 … of the job's folder; `kind` of progress: see `progress`.

    `job`: what the user sets besides. All members hold out the same examples, whatever their seeds, so that they have
    one vocabulary. `parallel`: how many are trained at the same time, each in a process of its own. A resumed call
    trains only members that are not done. In the end the folder can be loaded as an ensemble.
    """
    jobs = member_jobs(recipe, job)
    if parallel > 1:
        named = [
            NamedJob(f"member {one.folder.name}", one, member) for one, member in zip(jobs, recipe.parts(), strict=True)
        ]
        results, signal = run_parallel(named, parallel, kind)
    else:
        results, signal = _in_turn(recipe, jobs, kind)
    if signal is not None or Launch.of().rank:
        return Members(results, None, signal)
    save_recipe(recipe, job.folder)
    ensembles.save(job.folder, [one.run.folder.name for one in results])
    shown = progress(kind)
    scores = score_on_test(recipe, job.folder, job.device, shown.note)
    page = write_report([one.run.folder for one in results], job.folder / REPORT, GroupResult(record=scores))
    shown.note(f"all together: {job.folder}; their report: {page}")
    return Members(results, scores)


def _in_turn(recipe: Recipe, jobs: list[Job], kind: str) -> tuple[list[RecipeResult], int | None]:
    results: list[RecipeResult] = []
    for number, (member, job) in enumerate(zip(recipe.parts(), jobs, strict=True), 1):
        shown = progress(kind) if Launch.of().rank == 0 else Silent()
        shown.note(f"member {number} of {len(jobs)}: {job.model or job.start}")
        results.append(run_recipe(member, job, shown))
        if results[-1].signal is not None:
            return results, results[-1].signal
    return results, None


def member_jobs(recipe: Recipe, job: Job) -> list[Job]:
    """A job for each member. Wrong settings of any member are an error before the first one is trained."""
    ensembles.check_task(recipe.task, f"recipe {recipe.name}")
    if job.training.get("seed") is not None or "training.seed" in job.settings:
        raise SeqloomError(f"recipe {recipe.name}: its members have seeds of their own; leave --seed out")
    configs.check_folder(job.folder)
    if (job.folder / configs.FILE).exists():
        raise SeqloomError(f"{job.folder}: already holds a run; name another --output")
    jobs = [job_of(member, job) for member in recipe.parts()]
    _, dataset_valid = catalog.with_suited_options(jobs[0].names, jobs[0].data, recipe.task)
    valid = jobs[0].valid if jobs[0].valid is not None else dataset_valid or "5%"
    valid = with_fixed_seed(valid, recipe.training.get("seed", Training().seed))
    for one in jobs if job.start is None else ():
        configs.compose(one.task, one.model, one.size, one.data, one.training, one.settings)
    return [replace(one, output=job.folder / str(number), valid=valid) for number, one in enumerate(jobs, 1)]


def distinct_jobs(jobs: list[Job]) -> list[tuple[Job, int]]:
    """Jobs that differ in more than their seeds, each with its count: those that differ in the seed cost the same."""
    groups: list[list[Job]] = []
    for job in jobs:
        group = next((group for group in groups if _without_seed(group[0]) == _without_seed(job)), None)
        if group is None:
            groups.append([job])
        else:
            group.append(job)
    return [(group[0], len(group)) for group in groups]


def _without_seed(job: Job) -> Job:
    return replace(job, output="", training={key: value for key, value in job.training.items() if key != "seed"})


def _two_digits(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
