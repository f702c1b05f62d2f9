"""Recipes: a dataset, a model and its training, with the paper they follow and the score they reached.

A recipe is a YAML file with a fixed set of keys. `seqloom train --recipe NAME` trains by it, scores the model on the
test split and shows the score beside the one on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from seqloom.documents import read_yaml
from seqloom.errors import SeqloomError, known, shown
from seqloom.metrics.metric_table import METRICS, task_metrics
from seqloom.options import checked
from seqloom.safety import file_errors
from seqloom.setting_names import override

FILE = "recipe.yaml"
MEMBERS = 1000  # models of an ensemble: more would not fit into memory


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to do (`task` to `evaluate`), and what it reached (`published`, `reached`)."""

    name: str
    about: str  # one line
    paper: str = ""  # of the method and the split
    task: str
    train: str | list  # a dataset by name, or files, relative to the recipe's folder
    valid: str | list | None = None
    test: str | list | None = None  # None: the dataset's own test split, if it has one
    model: str
    size: str | None = None
    data: dict = field(default_factory=dict)  # keywords of the task's data options
    training: dict = field(default_factory=dict)  # keywords of Training
    settings: dict = field(default_factory=dict)  # as `--set` takes them
    evaluate: dict = field(default_factory=dict)  # beam, alpha, decoding, metrics, tokenize
    published: str = ""  # the figures of the paper
    reached: dict = field(default_factory=dict)  # scores by metric; signature, seeds, hardware, time, date, results
    members: list = field(default_factory=list)  # of an ensemble, see Member

    def scores(self) -> dict[str, float]:
        """The scores on record, by metric."""
        return {name: float(value) for name, value in self.reached.items() if isinstance(value, int | float)}

    def parts(self) -> list[Recipe]:
        """The recipe of each member; itself if it has none."""
        return [Member(**values).of(self) for values in self.members] or [self]


@dataclass(frozen=True, kw_only=True)
class Member:
    """How one model of an ensemble differs from the recipe. Its `training` and `settings` are added to the recipe's; a
    member with another model has only its own `settings`."""

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
            training={**override(recipe.training, self.training), **seed},
            settings=override(recipe.settings if self.model is None else {}, self.settings),
            reached={},  # is of the ensemble
            members=[],
        )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How the test data is scored."""

    beam: int = 1
    alpha: float = 1.0
    decoding: str = "auto"  # as `seqloom predict --decoding` takes it
    metrics: list | None = None  # that are shown; None: all
    tokenize: str = "13a"  # BLEU's


def names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(
        file.name.removesuffix(".yaml") for file in _package_recipes().iterdir() if file.name.endswith(".yaml")
    )


def load(name: str) -> Recipe:
    """A recipe by its name, or from a file of the user's."""
    own = name.endswith((".yaml", ".yml"))
    if not own and Path(name).is_file():
        raise SeqloomError(f"{name}: is no recipe; one of your own is a YAML file, whose name ends in .yaml")
    path = Path(name) if own else Path(str(_package_recipes() / f"{known(name, names(), 'recipe')}.yaml"))
    values = read_yaml(path)
    values = checked(Recipe, values, f"recipe {path.name}")
    needed = ("about", "task", "train", "model")
    if missing := [key for key in needed if key not in values]:
        raise SeqloomError(f"{path}: a recipe needs {', '.join(needed)}; {missing[0]} is missing")
    checked(Evaluate, values.get("evaluate", {}), f"evaluate in {path.name}")
    for name in values.get("evaluate", {}).get("metrics", []):
        of = METRICS[known(name, METRICS, f"metric of evaluate in {path.name}")].of  # empty: all tasks have it
        if of and (scored := task_metrics(values["task"])) and name not in scored:
            raise SeqloomError(f"recipe {path.name}: evaluate: {name} is no metric of the task {values['task']}")
    title = values.get("name", path.name)
    if title in ("", ".", "..") or "/" in title or not title.isprintable():
        raise SeqloomError(f"recipe {path.name}: {shown(title)} is no name: a folder in runs/ is called by it")
    values["members"] = _checked_members(values.get("members", []), path.name)
    return Recipe(**{"name": path.name.rpartition(".")[0], **values, **_data_paths(values, path.parent)})


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """The fields that are not empty, as they are saved in a run folder."""
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    return {name: value for name, value in values.items() if value not in (None, {}, [], "")}


def _checked_members(values: list, file: str) -> list[dict[str, Any]]:
    if len(values) > MEMBERS:
        raise SeqloomError(f"recipe {file}: at most {MEMBERS:,} members, here {len(values):,}")
    for number, one in enumerate(values, 1):
        if not isinstance(one, dict):
            raise SeqloomError(f"recipe {file}: member {number} is made of keys and values, as in {{seed: {number}}}")
        checked(Member, one, f"member {number} in {file}")
    if len(values) == 1 or any(one in values[:number] for number, one in enumerate(values)):
        raise SeqloomError(f"recipe {file}: members are at least two, and no two alike: give each its own seed")
    return values


def _data_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`train`, `valid` and `test` with the paths of files that are in the recipe's folder."""

    def path_of(name: Any) -> str:
        if not isinstance(name, str) or "\0" in name:
            raise SeqloomError(f"recipe in {folder}: {shown(name)} is no name of a file or a dataset")
        with file_errors(folder, "read"):
            return str(folder / name) if (folder / name).is_file() else name

    data = {key: values[key] for key in ("train", "valid", "test") if values.get(key) is not None}
    return {
        key: path_of(names) if isinstance(names, str) else [path_of(name) for name in names]
        for key, names in data.items()
    }


def _package_recipes() -> Any:
    return files("seqloom") / "recipes"
