"""Recipes: a data set, a model and its training, written down with the paper they follow and the score they reached.

A recipe is a YAML file of closed keys. `seqloom train --recipe NAME` trains as it says, scores the model on the test
split and sets the score beside the one on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from seqloom.documents import read_yaml
from seqloom.errors import SeqloomError, known, shown
from seqloom.metrics.metric_table import METRICS, TASK_METRICS
from seqloom.options import checked
from seqloom.safety import failing
from seqloom.setting_names import over
from seqloom.tasks.registry import TASKS

FILE = "recipe.yaml"
MEMBERS = 1000  # models that answer together: more would not fit, and finding that out takes long


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to do (`task` to `evaluate`), and what came of it."""

    name: str
    about: str  # one line
    paper: str = ""  # whose method, and whose split
    task: str
    train: str | list  # a data set by name, or files; a file's path counts from the recipe's folder
    valid: str | list | None = None
    test: str | list | None = None  # None: the data set's own test split, if it has one
    model: str
    size: str | None = None
    data: dict = field(default_factory=dict)  # keywords of the task's data options
    training: dict = field(default_factory=dict)  # keywords of Training
    settings: dict = field(default_factory=dict)  # as `--set` takes them
    evaluate: dict = field(default_factory=dict)  # beam, alpha, metrics, tokenize
    published: str = ""  # the figures of the paper
    reached: dict = field(default_factory=dict)  # scores by metric; signature, seeds, hardware, time, date, results
    members: list = field(default_factory=list)  # see Member: models that are trained one by one and answer together

    def scores(self) -> dict[str, float]:
        """The scores on record, by metric."""
        return {name: float(value) for name, value in self.reached.items() if isinstance(value, int | float)}

    def parts(self) -> list[Recipe]:
        """The recipe of each member; itself where it has none."""
        return [Member(**one).of(self) for one in self.members] or [self]


@dataclass(frozen=True, kw_only=True)
class Member:
    """In what one model of several differs from the rest of the recipe. One that names another model has settings of
    its own; else they are added, as those of the training always are."""

    seed: int | None = None
    model: str | None = None
    size: str | None = None
    training: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)

    def of(self, recipe: Recipe) -> Recipe:
        seed = {} if self.seed is None else {"seed": self.seed}
        return replace(
            recipe,
            model=self.model or recipe.model,
            size=self.size or recipe.size,
            training={**over(recipe.training, self.training), **seed},
            settings=over(recipe.settings if self.model is None else {}, self.settings),
            reached={},  # by all together
            members=[],
        )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How the test data is scored."""

    beam: int = 1
    alpha: float = 1.0
    metrics: list | None = None  # those to show; None: all
    tokenize: str = "13a"  # BLEU's


def names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(file.name.removesuffix(".yaml") for file in _shelf().iterdir() if file.name.endswith(".yaml"))


def load(name: str) -> Recipe:
    """A recipe by its name, or the file of one's own."""
    own = name.endswith((".yaml", ".yml"))
    if not own and Path(name).is_file():
        raise SeqloomError(f"{name}: is no recipe; one of your own is a YAML file, whose name ends in .yaml")
    path = Path(name) if own else Path(str(_shelf() / f"{known(name, names(), 'recipe')}.yaml"))
    values = read_yaml(path)
    values = checked(Recipe, values, f"recipe {path.name}")
    needed = ("about", "task", "train", "model")
    if missing := [key for key in needed if key not in values]:
        raise SeqloomError(f"{path}: a recipe needs {', '.join(needed)}; {missing[0]} is missing")
    checked(Evaluate, values.get("evaluate", {}), f"evaluate in {path.name}")
    for name in values.get("evaluate", {}).get("metrics", []):
        of = METRICS[known(name, METRICS, f"metric of evaluate in {path.name}")].of  # a form of the loss fits all tasks
        if values["task"] in TASKS and of and name not in TASK_METRICS[values["task"]]:
            raise SeqloomError(f"recipe {path.name}: evaluate: {name} is no metric of the task {values['task']}")
    called = values.get("name", path.name)
    if called in ("", ".", "..") or "/" in called or not called.isprintable():
        raise SeqloomError(f"recipe {path.name}: {shown(called)} is no name: a folder in runs/ is called by it")
    values["members"] = _members(values.get("members", []), path.name)
    return Recipe(**{"name": path.name.rpartition(".")[0], **values, **_placed(values, path.parent)})


def written(recipe: Recipe) -> dict[str, Any]:
    """As it is kept in a run folder: complete but for what is empty."""
    values = {one.name: getattr(recipe, one.name) for one in fields(recipe)}
    return {name: value for name, value in values.items() if value not in (None, {}, [], "")}


def _members(values: list, file: str) -> list[dict[str, Any]]:
    if len(values) > MEMBERS:
        raise SeqloomError(f"recipe {file}: at most {MEMBERS:,} members, here {len(values):,}")
    for number, one in enumerate(values, 1):
        if not isinstance(one, dict):
            raise SeqloomError(f"recipe {file}: member {number} is made of keys and values, as in {{seed: {number}}}")
        checked(Member, one, f"member {number} in {file}")
    if len(values) == 1 or any(one in values[:place] for place, one in enumerate(values)):
        raise SeqloomError(f"recipe {file}: members are at least two, and no two alike: give each its own seed")
    return values


def _placed(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Files beside the recipe are found there, from wherever the command is given."""

    def place(one: Any) -> str:
        if not isinstance(one, str) or "\0" in one:
            raise SeqloomError(f"recipe in {folder}: {shown(one)} is no name of a file or a dataset")
        with failing(folder, "read"):
            return str(folder / one) if (folder / one).is_file() else one

    found = {key: values[key] for key in ("train", "valid", "test") if values.get(key) is not None}
    return {key: place(one) if isinstance(one, str) else [place(file) for file in one] for key, one in found.items()}


def _shelf() -> Any:
    return files("seqloom") / "recipes"
