"""The modes of `seqloom train`: one run, a recipe, folds, or a dry run of two steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from seqloom.cli.arguments import UsageError
from seqloom.errors import is_known, known, missing, setting_errors
from seqloom.tasks.registry import TASKS

if TYPE_CHECKING:
    from seqloom.runs.recipes.recipe import Recipe
    from seqloom.runs.train.job import Job


class Mode(NamedTuple):
    """The options that choose how to train."""

    recipe: str | None
    folds: int | None
    jobs: int
    dry_run: bool
    show: str  # which kind of progress: see `progress`


def task_and_files(task: str | None, files: Sequence[str] | None, recipe: str | None) -> tuple[str, list[str]]:
    """The task and the files of a training. A recipe has its own task: then the first word may be a file."""
    given = list(files or [])
    if recipe is None:
        with setting_errors():
            return known(task or "", TASKS, "task"), given
    if task is None:
        return "", given
    if is_known(task, TASKS):
        return task, given
    from seqloom.data.datasets.catalog import DATASETS

    if task == "-" or is_known(task.partition(":")[0], DATASETS) or Path(task).exists():
        return "", [task, *given]
    near = get_close_matches(task, TASKS, 1)
    meant = f"; did you mean the task {near[0]!r}?" if near else ";"
    raise UsageError(
        f"{task}: no such file or dataset, and no task{meant} --recipe brings its task, and its own data if no files "
        f"are named, as in: seqloom train --recipe {recipe} mine.tsv --test test.tsv"
    )


def run(job: Job, mode: Mode) -> None:
    """Train and print the scores; if interrupted, print the command that resumes it, and exit as by the signal."""
    from seqloom.runs.many import parallel_jobs
    from seqloom.runs.progress import progress
    from seqloom.runs.recipes import recipe as recipes
    from seqloom.training.distributed.processes import Launch

    recipe = None if mode.recipe is None else recipes.load(mode.recipe)
    parallel_jobs.check_jobs(mode.jobs)
    if mode.jobs > 1 and mode.folds is None and not (recipe and recipe.members):
        raise UsageError("--jobs is for --folds and for recipes with members: here one model is trained")
    first, given_job = Launch.of().rank == 0, job
    if recipe is not None:
        recipe, job = _with_recipe(recipe, job, mode)
    if mode.dry_run:
        for line in _dry_run(recipe, job, mode):
            typer.echo(line)
        return
    lines, number = _train(recipe, job, mode)
    for line in lines if first and mode.show != "quiet" else ():
        typer.echo(line)
    if number is not None:
        if first:
            resume = f"seqloom train {_resume_words(given_job, mode)} --output {job.output} --resume"
            progress(mode.show).note(f"saved; go on with: {resume}")
        raise typer.Exit(128 + signal.Signals(number).value)


def _with_recipe(recipe: Recipe, job: Job, mode: Mode) -> tuple[Recipe, Job]:
    """The recipe, with the user's own data if the job names any, and its job."""
    from dataclasses import replace

    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.runs.progress import progress
    from seqloom.runs.recipes import run_recipe
    from seqloom.runs.train.job import file_names
    from seqloom.training.distributed.processes import Launch

    run_recipe.check(recipe, str(mode.recipe))
    if job.task not in ("", recipe.task):
        raise UsageError(f"recipe {mode.recipe} is of the task {recipe.task}, not of {job.task}")
    job = replace(job, output=job.output or f"runs/{recipe.name}")
    if job.names == file_names(recipe.train):  # the recipe's own data
        job = replace(job, files=[])
    own = run_recipe.on_own_data(recipe, job)
    if own is not recipe and Launch.of().rank == 0:
        for name in job.names:
            if name != "-" and not is_known(name.partition(":")[0], DATASETS) and not Path(name).exists():
                raise missing(name)
        progress(mode.show).note(run_recipe.own_data_note(recipe, own))
    return own, replace(job, test=None) if own.members else run_recipe.job_of(own, job)


def _dry_run(recipe: Recipe | None, job: Job, mode: Mode) -> Iterator[str]:
    """What the training would cost; of a recipe with members, each group that differs in the seed alone."""
    from dataclasses import replace

    from seqloom.runs.many import recipe_members
    from seqloom.runs.progress import progress
    from seqloom.runs.train import train
    from seqloom.training.distributed.processes import Launch

    jobs = recipe_members.member_jobs(recipe, job) if recipe is not None and recipe.members else [job]
    for one, times in recipe_members.distinct_jobs(jobs):
        cost = train.dry_run(replace(one, output=one.output or "(dry run)"), progress(mode.show))
        if Launch.of().rank == 0:
            yield from [f"{times} members, each:"] if times > 1 else []
            yield from cost.lines()


def _train(recipe: Recipe | None, job: Job, mode: Mode) -> tuple[list[str], int | None]:
    """Lines with the scores, and the signal that interrupted the training."""
    from seqloom.runs.evaluate import test_scores
    from seqloom.runs.many import cross_validation, recipe_members
    from seqloom.runs.progress import progress
    from seqloom.runs.recipes import run_recipe
    from seqloom.runs.train import train

    if mode.folds is not None:
        folds = cross_validation.cross_validate(job, mode.folds, mode.show, mode.jobs)
        return folds.lines(), folds.signal
    if recipe is not None and recipe.members:
        members = recipe_members.run_members(recipe, job, mode.show, mode.jobs)
        return members.lines(recipe), members.signal
    if recipe is not None:
        result = run_recipe.run_recipe(recipe, job, progress(mode.show))
        return result.lines(recipe), result.signal
    run = train.run_job(job, progress(mode.show))
    return ([] if run.scores is None else test_scores.lines(run.scores)), run.signal


def _resume_words(job: Job, mode: Mode) -> str:
    """The arguments that resume an interrupted training, except those that are saved in its folder."""
    from seqloom.runs.train.job import file_names

    words = ["--recipe", mode.recipe, *job.names] if mode.recipe else [job.task, "…"]
    words += [word for name in ([] if job.test is None else file_names(job.test)) for word in ("--test", name)]
    words += ["--folds", mode.folds] if mode.folds else []
    words += ["--jobs", mode.jobs] if mode.jobs > 1 else []
    return " ".join(map(str, words))
