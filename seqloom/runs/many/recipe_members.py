"""A recipe with members: each is trained into its own folder, then all are scored together as an ensemble."""

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
from seqloom.runs.many.parallel_jobs import Part, run_parallel
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
    """What became of each member, and the scores of all together; None if one was interrupted or there is no test."""

    followed: list[RecipeResult]
    scores: Mapping[str, Any] | None
    signal: int | None = None

    def lines(self, recipe: Recipe) -> list[str]:
        """Lines with the scores of each member, then those of all together."""
        if self.scores is None:
            return []
        wanted = recipe.evaluate.get("metrics") or list(self.scores["metrics"])
        alone = [(one.run.folder.name, one.scores["metrics"]) for one in self.followed if one.scores]
        lines = [
            f"member {name}: {', '.join(f'{key} {_round(found[key])}' for key in wanted)}" for name, found in alone
        ]
        first, *rest = comparison_lines(recipe, self.scores)
        return [*lines, f"{len(self.followed)} members together, {first}", *rest]


def run_members(recipe: Recipe, job: Job, kind: str = "usual", at_once: int = 1) -> Members:
    """Train the recipe's members into 1, 2 … of the job's folder; `kind` of progress: see `progress`.

    `job`: what the user asks for besides. All members hold out the same examples, whatever their seeds, so that they
    have one vocabulary. `at_once`: so many are trained at a time, each in a process of its own. An interrupted
    one is resumed like a training: members that are done are not trained again. In the end the folder stands
    for all of them: it can be loaded as a run can.
    """
    jobs = jobs_of(recipe, job)
    if at_once > 1:
        parts = [Part(f"member {one.folder.name}", one, part) for one, part in zip(jobs, recipe.parts(), strict=True)]
        followed, signal = run_parallel(parts, at_once, kind)
    else:
        followed, signal = _in_turn(recipe, jobs, kind)
    if signal is not None or Launch.of().rank:
        return Members(followed, None, signal)
    save_recipe(recipe, job.folder)
    ensembles.save(job.folder, [one.run.folder.name for one in followed])
    shown = progress(kind)
    scores = score_on_test(recipe, job.folder, job.device, shown.note)
    page = write_report([one.run.folder for one in followed], job.folder / REPORT, GroupResult(record=scores))
    shown.note(f"all together: {job.folder}; their report: {page}")
    return Members(followed, scores)


def _in_turn(recipe: Recipe, jobs: list[Job], kind: str) -> tuple[list[RecipeResult], int | None]:
    followed: list[RecipeResult] = []
    for number, (part, one) in enumerate(zip(recipe.parts(), jobs, strict=True), 1):
        shown = progress(kind) if Launch.of().rank == 0 else Silent()
        shown.note(f"member {number} of {len(jobs)}: {one.model or one.start}")
        followed.append(run_recipe(part, one, shown))
        if followed[-1].signal is not None:
            return followed, followed[-1].signal
    return followed, None


def jobs_of(recipe: Recipe, job: Job) -> list[Job]:
    """A job for each member. What would stop one of them is reported before the first is trained."""
    ensembles.check_task(recipe.task, f"recipe {recipe.name}")
    if job.training.get("seed") is not None or "training.seed" in job.settings:
        raise SeqloomError(f"recipe {recipe.name}: its members have seeds of their own; leave --seed out")
    configs.check_folder(job.folder)
    if (job.folder / configs.FILE).exists():
        raise SeqloomError(f"{job.folder}: already holds a run; name another --output")
    jobs = [job_of(part, job) for part in recipe.parts()]
    _, brought = catalog.with_suited_options(jobs[0].names, jobs[0].data, recipe.task)
    valid = jobs[0].valid if jobs[0].valid is not None else brought or "5%"
    valid = with_fixed_seed(valid, recipe.training.get("seed", Training().seed))
    for one in jobs if job.start is None else ():
        configs.compose(one.task, one.model, one.size, one.data, one.training, one.settings)
    return [replace(one, output=job.folder / str(number), valid=valid) for number, one in enumerate(jobs, 1)]


def distinct(jobs: list[Job]) -> list[tuple[Job, int]]:
    """Jobs that differ in more than their seeds, and how many there are of each: those cost the same."""
    found: list[tuple[Job, int]] = []
    for one in jobs:
        kinds = [_but_seed(other) for other, _ in found]
        if _but_seed(one) in kinds:
            place = kinds.index(_but_seed(one))
            found[place] = (found[place][0], found[place][1] + 1)
        else:
            found.append((one, 1))
    return found


def _but_seed(job: Job) -> Job:
    return replace(job, output="", training={key: value for key, value in job.training.items() if key != "seed"})


def _round(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
