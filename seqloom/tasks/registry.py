"""The tasks by name: a folder each, whose `task` module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqloom.errors import known

if TYPE_CHECKING:
    from seqloom.tasks.shared.task import Task

NAMES = ("translate", "classify", "table", "tag", "generate", "mask", "vectors")
_PACKAGES = {name: import_module(f"seqloom.tasks.{name}") for name in NAMES}
TASKS: dict[str, str] = {name: package.ABOUT for name, package in _PACKAGES.items()}  # with what each does, in a line
CHECKS: dict[str, str] = {name: package.CHECK for name, package in _PACKAGES.items()}


def task(name: str) -> Task[Any]:
    return import_module(f"seqloom.tasks.{known(name, TASKS, 'task')}.task").TASK
