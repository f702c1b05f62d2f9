"""Trains by a recipe, scores on its test data, and shows the score beside the one on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seqloom.data.datasets import catalog
from seqloom.data.files.columns import ReadOptions
from seqloom.decoding.decoding_table import parse_decoding
from seqloom.decoding.search_options import AUTO, Search
from seqloom.errors import SeqloomError, known
from seqloom.files import write_atomic
from seqloom.metrics.text.bleu_chrf import tokenizer
from seqloom.options import hints_of, without_none
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
from seqloom.setting_names import override
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
        recorded, ours = (of.get("signature", {}).get(name, "") for of in (recipe.reached, scores))
        differs = recorded and ours and _without_version(recorded) != _without_version(ours)
        return f"  on record {recipe.scores()[name]:g}" + (f", counted otherwise: {recorded}" if differs else "")

    return test_scores.lines(scores, recipe.evaluate.get("metrics"), beside)


def _without_version(signature: str) -> str:
    """The parts of a signature that must be equal for two scores to be comparable."""
    return "|".join(part for part in signature.split("|") if not part.startswith("version:"))


def check(recipe: Recipe, name: str) -> None:
    """Refuse wrong values before any data are read, as errors of the recipe, not of the command line. `name`: as the
    user gave it."""
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
    """The recipe with the job's data, if the job names any: without the score on record and without the settings that
    belong to the recipe's own files."""
    own_data = bool(job.names) and job.names != file_names(recipe.train)
    test = None if job.test is None else file_names(job.test)
    if not own_data and (test is None or test_files(recipe) in (test, [f"{name}:test" for name in test])):
        return recipe
    changed: dict[str, Any] = {"reached": {}, "published": ""}
    if own_data:
        settings, _ = catalog.with_suited_options(file_names(recipe.train), recipe.data, recipe.task)
        data = {name: value for name, value in settings.items() if name not in hints_of(ReadOptions)}
        is_share = recipe.valid is not None and not isinstance(parse_valid(recipe.valid), list)
        changed |= {"train": job.names, "valid": recipe.valid if is_share else None, "test": None, "data": data}
    if test is not None:
        test_scores.check(test, recipe.task)
        changed["test"] = test
    return replace(recipe, **changed)


def own_data_note(recipe: Recipe, own: Recipe) -> str:
    """The note that is printed when a recipe trains on other data than its own."""
    names = test_files(own)
    record = ", ".join(f"{name} {value:g}" for name, value in recipe.scores().items())
    record = f"its record ({record}) is of other data and not compared" if record else "it has no record"
    scored = (
        f"scored on {', '.join(names)}" if names else "without --test FILE it is scored on the validation data alone"
    )
    return f"recipe {recipe.name} on your own data: {record}; {scored}"


def job_of(recipe: Recipe, job: Job) -> Job:
    """The recipe as a job; what the user's `job` sets takes precedence."""
    training = without_none(job.training)
    sizes = ("batch_rows", "batch_tokens")  # one replaces the other
    recipe_training = {
        name: value for name, value in recipe.training.items() if name not in sizes or not training.keys() & set(sizes)
    }
    return replace(
        job,
        task=recipe.task,
        test=None,  # the recipe has the test data: see `on_own_data`
        files=job.files or recipe.train,
        valid=recipe.valid if job.valid is None else job.valid,
        model=job.model or (recipe.model if job.start is None else None),
        size=job.size or (recipe.size if job.model is None and job.start is None else None),
        data=override(recipe.data, without_none(job.data)),
        training=override(recipe_training, training),
        settings=override(recipe.settings if job.start is None else {}, job.settings),
        recorded=not job.files,
    )


def run_recipe(recipe: Recipe, job: Job, progress: Progress) -> RecipeResult:
    """Train, score and save the recipe in the run folder. `job`: from `job_of`."""
    run = run_job(job, progress)
    if run.signal is not None or Launch.of().rank:
        return RecipeResult(run, None)
    save_recipe(recipe, run.folder)
    scores = score_on_test(recipe, run.folder, job.device, progress.note)
    if scores is not None:
        write_run_report(run.folder)
    return RecipeResult(run, scores)


def save_recipe(recipe: Recipe, folder: Path) -> None:
    text = yaml.safe_dump(recipes.recipe_values(recipe), sort_keys=False, allow_unicode=True, width=100)
    write_atomic(folder / recipes.FILE, text)


def score_on_test(recipe: Recipe, folder: Path, device: str, note: Callable[[str], object]) -> dict[str, Any] | None:
    """The evaluation of a run or an ensemble on the recipe's test data, also written into the folder; None if it has no
    test data. `note` is called with remarks on the data."""
    names = test_files(recipe)
    if not names:
        return None
    options = {name: recipe.evaluate[name] for name in ("tokenize",) if name in recipe.evaluate}
    return test_scores.score(folder, load(folder, device=device), names, note, search_of(recipe), **options)


def search_of(recipe: Recipe) -> Search:
    """The search for predictions on the test data."""
    given = {name: recipe.evaluate[name] for name in ("beam", "alpha") if name in recipe.evaluate}
    return Search(**given, decoding=parse_decoding(recipe.evaluate.get("decoding", AUTO)))


def test_files(recipe: Recipe) -> list[str]:
    """The recipe's test data, else the test split of the dataset that it trains on."""
    if recipe.test is not None:
        return file_names(recipe.test)
    dataset = catalog.DATASETS.get(file_names(recipe.train)[0])
    return [f"{dataset.name}:test"] if dataset and "test" in dataset.sizes else []
