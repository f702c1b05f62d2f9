"""Train by a recipe, score on its test data, and show the score beside the one on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seqloom.data.datasets import catalog
from seqloom.data.files.columns import ReadOptions
from seqloom.decoding.options import Search
from seqloom.errors import SeqloomError, known
from seqloom.files import write_atomic
from seqloom.metrics.text.bleu_chrf import tokenizer
from seqloom.options import hints_of, set_values
from seqloom.runs import config as configs
from seqloom.runs.evaluate import test_scores
from seqloom.runs.evaluate.report_files import write_run_report
from seqloom.runs.load import load
from seqloom.runs.progress import Progress
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.train.job import Job, file_names
from seqloom.runs.train.train import Run, run_job
from seqloom.runs.train.validation_split import parse_valid
from seqloom.setting_names import over
from seqloom.tasks.registry import TASKS
from seqloom.training.distributed.processes import Launch


@dataclass(frozen=True)
class RecipeResult:
    """A run, and its scores on the recipe's test data; None if it was interrupted or the recipe has no test data."""

    run: Run
    scores: Mapping[str, Any] | None

    @property
    def signal(self) -> int | None:
        return self.run.signal

    def lines(self, recipe: Recipe) -> list[str]:
        """Lines with the scores and those on record."""
        return [] if self.scores is None else comparison_lines(recipe, self.scores)


def comparison_lines(recipe: Recipe, scores: Mapping[str, Any]) -> list[str]:
    """Lines with the scores on the test data and those on record."""

    def beside(name: str) -> str:
        if name not in recipe.scores():
            return ""
        theirs, ours = (of.get("signature", {}).get(name, "") for of in (recipe.reached, scores))
        otherwise = theirs and ours and _protocol(theirs) != _protocol(ours)
        return f"  on record {recipe.scores()[name]:g}" + (f", counted otherwise: {theirs}" if otherwise else "")

    return test_scores.lines(scores, recipe.evaluate.get("metrics"), beside)


def _protocol(signature: str) -> str:
    """What makes two scores comparable: not by which version they were counted."""
    return "|".join(part for part in signature.split("|") if not part.startswith("version:"))


def check(recipe: Recipe, name: str) -> None:
    """Report wrong values before any data is read, as errors of the recipe, not of the command line. `name`: what the
    user calls it."""
    where = f"recipe {name}"
    try:
        known(recipe.task, TASKS, "task")
        parse_valid("5%" if recipe.valid is None else recipe.valid)
        search_of(recipe)
        tokenizer(recipe.evaluate.get("tokenize", "13a"))
        for number, one in enumerate(recipe.parts(), 1):
            where = f"recipe {name}: member {number}" if recipe.members else where
            configs.compose(one.task, one.model, one.size, one.data, one.training, one.settings)
    except SeqloomError as error:
        raise SeqloomError(f"{where}: {error}") from error


def on_own_data(recipe: Recipe, job: Job) -> Recipe:
    """The recipe on the job's data, if the job names any: how it trains stays, what belongs to its own files does not,
    and its score on record, which was reached on its own data, is dropped."""
    own = bool(job.names) and job.names != file_names(recipe.train)
    test = None if job.test is None else file_names(job.test)
    if not own and (test is None or test_files(recipe) in (test, [f"{name}:test" for name in test])):
        return recipe
    changed: dict[str, Any] = {"reached": {}, "published": ""}
    if own:
        brought, _ = catalog.with_suited_options(file_names(recipe.train), recipe.data, recipe.task)
        data = {name: value for name, value in brought.items() if name not in hints_of(ReadOptions)}
        shared = recipe.valid is not None and not isinstance(parse_valid(recipe.valid), list)
        changed |= {"train": job.names, "valid": recipe.valid if shared else None, "test": None, "data": data}
    if test is not None:
        test_scores.check(test, recipe.task)
        changed["test"] = test
    return replace(recipe, **changed)


def own_data_note(recipe: Recipe, own: Recipe) -> str:
    """The note printed when a recipe is followed on other data than its own."""
    names = test_files(own)
    record = ", ".join(f"{name} {value:g}" for name, value in recipe.scores().items())
    record = f"its record ({record}) is of other data and not compared" if record else "it has no record"
    way = f"scored on {', '.join(names)}" if names else "without --test FILE it is scored on the validation data alone"
    return f"recipe {recipe.name} on your own data: {record}; {way}"


def job_of(recipe: Recipe, job: Job) -> Job:
    """The recipe's job; what the user asks for besides wins."""
    asked = set_values(job.training)
    return replace(
        job,
        task=recipe.task,
        test=None,  # the recipe knows how it is scored, and on what: see `on_own_data`
        files=job.files or recipe.train,
        valid=recipe.valid if job.valid is None else job.valid,
        model=job.model or (recipe.model if job.start is None else None),
        size=job.size or (recipe.size if job.model is None and job.start is None else None),
        data=over(recipe.data, set_values(job.data)),
        training=over(_without(recipe.training, asked), asked),
        settings=over(recipe.settings if job.start is None else {}, job.settings),
        recorded=not job.files,
    )


def _without(training: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A batch is measured in rows or in tokens: whichever the user chooses replaces the other."""
    sizes = ("batch_rows", "batch_tokens")
    return {name: value for name, value in training.items() if name not in sizes or not given.keys() & set(sizes)}


def run_recipe(recipe: Recipe, job: Job, progress: Progress) -> RecipeResult:
    """`job`: as `job_of` made it. The recipe itself is left in the run's folder."""
    run = run_job(job, progress)
    if run.signal is not None or Launch.of().rank:
        return RecipeResult(run, None)
    save_recipe(recipe, run.folder)
    scores = score_on_test(recipe, run.folder, job.device, progress.note)
    if scores is not None:
        write_run_report(run.folder)
    return RecipeResult(run, scores)


def save_recipe(recipe: Recipe, folder: Path) -> None:
    kept = yaml.safe_dump(recipes.written(recipe), sort_keys=False, allow_unicode=True, width=100)
    write_atomic(folder / recipes.FILE, kept)


def score_on_test(recipe: Recipe, folder: Path, device: str, note: Callable[[str], object]) -> dict[str, Any] | None:
    """What a run, or several together, reach on the recipe's test data; left in the folder too. None: it has none.
    `note` is called with remarks on the data."""
    names = test_files(recipe)
    more = {name: recipe.evaluate[name] for name in ("tokenize",) if name in recipe.evaluate}
    return (
        test_scores.score(folder, load(folder, device=device), names, note, search_of(recipe), **more)
        if names
        else None
    )


def search_of(recipe: Recipe) -> Search:
    """The search by which its test data are predicted."""
    return Search(**{name: recipe.evaluate[name] for name in ("beam", "alpha") if name in recipe.evaluate})


def test_files(recipe: Recipe) -> list[str]:
    """What the recipe is scored on: its own test data, else the test split of the dataset that it trains on."""
    if recipe.test is not None:
        return file_names(recipe.test)
    dataset = catalog.DATASETS.get(file_names(recipe.train)[0])
    return [f"{dataset.name}:test"] if dataset and "test" in dataset.sizes else []
