"""Following a recipe: train as it says, score on its test data, and set the score beside the one on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seqloom.data import registry
from seqloom.data.amounts import counted
from seqloom.decoding.search import Search
from seqloom.errors import SeqloomError, known
from seqloom.files import write_atomic, write_json
from seqloom.metrics.text import tokenizer
from seqloom.runs import config as configs
from seqloom.runs import recipes
from seqloom.runs.job import Job, file_names, share_or_files
from seqloom.runs.load import load
from seqloom.runs.progress import Progress
from seqloom.runs.recipes import Recipe
from seqloom.runs.report import evaluation, write
from seqloom.runs.train import Run, carry_out
from seqloom.tasks.known import TASKS
from seqloom.training.distributed import Launch

EVERY = 10**9  # a test set is scored whole


@dataclass(frozen=True)
class Followed:
    """A run, and its scores on the recipe's test data; None if it was interrupted or the recipe has none."""

    run: Run
    scores: Mapping[str, Any] | None

    @property
    def signal(self) -> int | None:
        return self.run.signal

    def lines(self, recipe: Recipe) -> list[str]:
        """Scores beside those on record, for the eye."""
        return [] if self.scores is None else compared(recipe, self.scores)


def compared(recipe: Recipe, scores: Mapping[str, Any]) -> list[str]:
    """Scores on the test data beside those on record, for the eye."""
    told = [counted(scores["count"], f"test {scores.get('unit', 'examples')}")]
    for name in recipe.evaluate.get("metrics") or list(scores["metrics"]):
        low, high = scores["intervals"].get(name, (None, None))
        spread = "" if low is None else f"  95 %: {low:.2f} … {high:.2f}"
        on_record = f"  on record {recipe.scores()[name]:g}" if name in recipe.scores() else ""
        theirs, ours = (of.get("signature", {}).get(name, "") for of in (recipe.reached, scores))
        if theirs and ours and _protocol(theirs) != _protocol(ours):
            on_record += f", counted otherwise: {theirs}"
        value = scores["metrics"][name]
        told.append(f"  {name:<12} {'none' if value is None else f'{value:.2f}':>8}{spread}{on_record}")
    return told


def _protocol(signature: str) -> str:
    """What makes two scores comparable: not by which version they were counted."""
    return "|".join(part for part in signature.split("|") if not part.startswith("version:"))


def check(recipe: Recipe, name: str) -> None:
    """Wrong values are said before anything is read, and that they stand in the recipe: nobody wrote them on the
    command line. `name`: what the user called it by."""
    where = f"recipe {name}"
    try:
        known(recipe.task, TASKS, "task")
        share_or_files("5%" if recipe.valid is None else recipe.valid)
        search_of(recipe)
        tokenizer(recipe.evaluate.get("tokenize", "13a"))
        for number, one in enumerate(recipe.parts(), 1):
            where = f"recipe {name}: member {number}" if recipe.members else where
            configs.compose(one.task, one.model, one.size, one.data, one.training, one.settings)
    except SeqloomError as error:
        raise SeqloomError(f"{where}: {error}") from error


def job_of(recipe: Recipe, job: Job) -> Job:
    """The recipe's job; what the user asks for besides wins."""
    return replace(
        job,
        task=recipe.task,
        files=job.files or recipe.train,
        valid=recipe.valid if job.valid is None else job.valid,
        model=job.model or (recipe.model if job.start is None else None),
        size=job.size or (recipe.size if job.model is None and job.start is None else None),
        data={**recipe.data, **_given(job.data)},
        training={**_without(recipe.training, _given(job.training)), **_given(job.training)},
        settings={**(recipe.settings if job.start is None else {}), **job.settings},
    )


def _without(training: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A batch is measured in rows or in tokens: whichever the user chooses replaces the other."""
    sizes = ("batch_rows", "batch_tokens")
    return {name: value for name, value in training.items() if name not in sizes or not given.keys() & set(sizes)}


def follow(recipe: Recipe, job: Job, progress: Progress) -> Followed:
    """`job`: as `job_of` made it. The recipe itself is left in the run's folder."""
    run = carry_out(job, progress)
    if run.signal is not None or Launch.of().rank:
        return Followed(run, None)
    keep(recipe, run.folder)
    scores = scored(recipe, run.folder, job.device)
    if scores is not None:
        write(run.folder)
    return Followed(run, scores)


def keep(recipe: Recipe, folder: Path) -> None:
    kept = yaml.safe_dump(recipes.written(recipe), sort_keys=False, allow_unicode=True, width=100)
    write_atomic(folder / recipes.FILE, kept)


def scored(recipe: Recipe, folder: Path, device: str) -> dict[str, Any] | None:
    """What a run, or several together, reach on the recipe's test data; left in the folder too. None: it has none."""
    names = tested(recipe)
    if not names:
        return None
    model = load(folder, device=device)
    examples, _ = model.read(registry.resolve(names, "test", recipe.task), model.reading())
    more = {name: recipe.evaluate[name] for name in ("tokenize",) if name in recipe.evaluate}
    scores = model.record(examples, search_of(recipe), most=EVERY, **more)
    write_json(folder / evaluation("test"), scores)
    return scores


def search_of(recipe: Recipe) -> Search:
    """By which its test data is answered."""
    return Search(**{name: recipe.evaluate[name] for name in ("beam", "alpha") if name in recipe.evaluate})


def tested(recipe: Recipe) -> list[str]:
    """What the recipe is scored on: its own test data, else the test split of the dataset that it trains on."""
    if recipe.test is not None:
        return file_names(recipe.test)
    dataset = registry.DATASETS.get(file_names(recipe.train)[0])
    return [f"{dataset.name}:test"] if dataset and "test" in dataset.sizes else []


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
