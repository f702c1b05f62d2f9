"""What `seqloom train` does once its options are read: plainly, by a recipe, by folds, or only two steps of it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqloom.cli.usage import UsageError
from seqloom.errors import SettingError, known, missing, setting, shown
from seqloom.tasks.registry import TASKS

if TYPE_CHECKING:
    from seqloom.runs.recipes.recipe import Recipe
    from seqloom.runs.train.job import Job


def words(task: str | None, files: Sequence[str] | None, recipe: str | None) -> tuple[str, list[str]]:
    """The task and the files that a training was given. A recipe has its task, so that files may stand alone."""
    given = list(files or [])
    if recipe is None:
        with setting():
            return known(task or "", TASKS, "task"), given
    if task is None:
        return "", given
    if task in TASKS:
        return task, given
    from seqloom.data.datasets.catalog import DATASETS

    if task == "-" or task.partition(":")[0] in DATASETS or Path(task).exists():
        return "", [task, *given]
    near = get_close_matches(task, TASKS, 1)
    meant = f"; did you mean the task {near[0]!r}?" if near else ";"
    raise UsageError(
        f"{task}: no such file or dataset, and no task{meant} --recipe brings its task, and its own data if no files "
        f"are named, as in: seqloom train --recipe {recipe} mine.tsv --test test.tsv"
    )


def carry_out(job: Job, ways: dict[str, Any], kind: str) -> None:
    """`kind` of progress: see `progress`; `ways`: recipe, folds, jobs and dry_run, as they were given."""
    from dataclasses import replace

    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.runs.many import parallel_jobs, recipe_members
    from seqloom.runs.progress import progress
    from seqloom.runs.recipes import follow
    from seqloom.runs.recipes import recipe as recipes
    from seqloom.runs.train import train
    from seqloom.runs.train.job import file_names
    from seqloom.training.distributed.processes import Launch

    first, asked = Launch.of().rank == 0, job
    recipe = None if ways["recipe"] is None else recipes.load(ways["recipe"])
    parallel_jobs.check(ways["jobs"])
    if ways["jobs"] > 1 and ways["folds"] is None and not (recipe and recipe.members):
        raise UsageError("--jobs is for --folds and for recipes with members: here one model is trained")
    if recipe is not None:
        follow.check(recipe, str(ways["recipe"]))
        if job.task not in ("", recipe.task):
            raise UsageError(f"recipe {ways['recipe']} is of the task {recipe.task}, not of {job.task}")
        job = replace(job, output=job.output or f"runs/{recipe.name}")
        if job.names == file_names(recipe.train):  # its own data by name: followed as it is
            job = replace(job, files=[])
        recipe, theirs = follow.on_own_data(recipe, job), recipe
        if recipe is not theirs and first:
            for name in job.names:
                if name != "-" and name.partition(":")[0] not in DATASETS and not Path(name).exists():
                    raise missing(name)
            progress(kind).note(follow.told_of_own_data(theirs, recipe))
        job = replace(job, test=None) if recipe.members else follow.job_of(recipe, job)
    if ways["dry_run"]:
        jobs = recipe_members.jobs_of(recipe, job) if recipe is not None and recipe.members else [job]
        for one, times in recipe_members.alike(jobs):
            cost = train.rehearse(replace(one, output=one.output or "(dry run)"), progress(kind))
            several = [f"{times} members, each:"] if times > 1 else []
            typer.echo("\n".join([*several, *cost.lines()] if first else ()), nl=first)
        return
    told, number = _trained(job, recipe, ways, kind)
    for line in told if first and kind != "quiet" else ():
        typer.echo(line)
    if number is not None:
        if first:
            progress(kind).note(
                f"saved; go on with: seqloom train {_again(asked, ways)} --output {job.output} --resume"
            )
        raise typer.Exit(128 + signal.Signals(number).value)


def _trained(job: Job, recipe: Recipe | None, ways: dict[str, Any], kind: str) -> tuple[list[str], int | None]:
    """What is told of the training, and the signal that interrupted it."""
    from seqloom.runs.evaluate import test_scores
    from seqloom.runs.many import cross_validation, recipe_members
    from seqloom.runs.progress import progress
    from seqloom.runs.recipes import follow
    from seqloom.runs.train import train

    if ways["folds"] is not None:
        found = cross_validation.cross_validate(job, ways["folds"], kind, ways["jobs"])
        return found.lines(), found.signal
    if recipe is not None and recipe.members:
        followed = recipe_members.follow_all(recipe, job, kind, ways["jobs"])
        return followed.lines(recipe), followed.signal
    if recipe is not None:
        alone = follow.follow(recipe, job, progress(kind))
        return alone.lines(recipe), alone.signal
    run = train.carry_out(job, progress(kind))
    return ([] if run.scores is None else test_scores.lines(run.scores)), run.signal


def _again(job: Job, ways: dict[str, Any]) -> str:
    """What goes on with an interrupted training, as far as it cannot be told from its folder."""
    words = [*(["--recipe", ways["recipe"], *job.names] if ways["recipe"] else [job.task, "…"])]
    words += [word for one in ([] if job.test is None else _names(job.test)) for word in ("--test", one)]
    words += ["--folds", ways["folds"]] if ways["folds"] else []
    words += ["--jobs", ways["jobs"]] if ways["jobs"] > 1 else []
    return " ".join(map(str, words))


def _names(files: Any) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]


def pair(text: str, parse: Any) -> tuple[str, Any]:
    """`--set a.b=c`"""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingError(f"--set takes key=value, here {shown(text)}")
    return key.strip(), parse(value)
