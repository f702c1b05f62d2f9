"""OBJECTIVES: what can be minimized, by name. The first entry that fits a task is its usual one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from seqloom.build import Choice, build, complete, kind_of, settings, short
from seqloom.errors import SeqloomError, known
from seqloom.options import hints_of
from seqloom.training.objectives.labels import BinaryCrossEntropy, CrossEntropy, SquaredError
from seqloom.training.objectives.masked_tokens import MaskedPrediction
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.skip_gram import NegativeSampling
from seqloom.training.objectives.tags import TagLikelihood
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import AUTO, Training

OBJECTIVES: dict[str, type[Objective]] = {
    "teacher-forcing": TeacherForcing,
    "cross-entropy": CrossEntropy,
    "binary-cross-entropy": BinaryCrossEntropy,
    "squared-error": SquaredError,
    "tag-likelihood": TagLikelihood,
    "next-token": NextToken,
    "masked-prediction": MaskedPrediction,
    "negative-sampling": NegativeSampling,
}


def objectives_of(task: str, target: str | None = None) -> list[str]:
    """Those for a task and a kind of target (None: any), its usual one first."""
    return [name for name, entry in OBJECTIVES.items() if _is_for(entry, task, target)]


def make_objective(model: nn.Module, training: Training, task: str, target: str | None = None) -> Objective:
    """The objective that `training.objective` names; `target`: label, labels or number, where a task has several."""
    choice: Any = training.objective
    if choice == AUTO:
        fitting = objectives_of(task, target)
        if not fitting:
            raise SeqloomError(f"there is no objective for {task}: one must name it in its `tasks`")
        choice = fitting[0]
    _check(choice, task, target)
    taken = settings(OBJECTIVES[kind_of(choice)]).keys() & hints_of(Training).keys()
    if training.r_drop and "r_drop" not in taken:
        raise SeqloomError(
            "training.r_drop goes with translate and tag, and with classify and table where one label is predicted; "
            f"leave it out for this training of {task}"
        )
    return build(OBJECTIVES, choice, model=model, **{name: getattr(training, name) for name in taken})


def complete_objective(choice: Choice, task: str) -> Any:
    """The choice with its own settings written out; refused if it is not for this task."""
    if choice == AUTO:
        return choice
    if kind_of(choice) is not None:
        _check(choice, task)
    whole = complete(OBJECTIVES, choice, "training.objective")
    return short({name: value for name, value in whole.items() if name not in hints_of(Training)})


def _check(choice: Choice, task: str, target: str | None = None) -> None:
    name = known(kind_of(choice), OBJECTIVES, "objective")
    entry, fitting = OBJECTIVES[name], objectives_of(task, target)
    if not _is_for(entry, task, target):
        what = task if target is None or task not in entry.tasks else f"{task} with the target {target}"
        raise SeqloomError(f"training.objective {name} is not for {what}; choose from: {', '.join(fitting)}")
    if isinstance(choice, Mapping):
        for setting in choice.keys() & settings(entry).keys() & hints_of(Training).keys():
            raise SeqloomError(f"training.objective.{setting} is a setting of the training: set training.{setting}")


def _is_for(entry: type[Objective], task: str, target: str | None) -> bool:
    return task in entry.tasks and (target is None or not entry.targets or target in entry.targets)
