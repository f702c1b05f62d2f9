"""The `training` section of a config with every default, also those of what it chooses by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from seqloom.build import complete, short
from seqloom.training.objectives.objective_table import complete_objective
from seqloom.training.optim.optimizer_table import MAKERS
from seqloom.training.optim.schedule import SCHEDULES
from seqloom.training.settings import Training


def complete_training(task: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over the `defaults` of task and model. Settings of an optimizer or a schedule without its name are those
    of the usual one."""
    usual = {name: {"kind": defaults.get(name, getattr(Training, name))} for name in ("optimizer", "schedule")}
    given = {name: {**usual[name], **v} if name in usual and isinstance(v, dict) else v for name, v in given.items()}
    training = Training.of({**defaults, **given})
    return {
        **asdict(training),
        "objective": complete_objective(training.objective, task),
        "optimizer": short(complete(MAKERS, training.optimizer, "training.optimizer")),
        "schedule": short(complete(SCHEDULES, training.schedule, "training.schedule")),
    }
