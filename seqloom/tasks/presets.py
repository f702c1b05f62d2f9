"""Models by one word, for every task. Literal tables, so that the command line can name them without importing torch.

A preset is a partial model config (and the training settings that suit it); a size adds the widths and depths.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from seqloom.errors import known
from seqloom.options import merge
from seqloom.tasks import registry

__all__ = ["DEFAULT", "SIZES", "TASKS", "about", "merge", "preset", "suited"]

TASKS: dict[str, ModuleType] = {name: import_module(f"seqloom.tasks.{name}.presets") for name in registry.TASKS}
DEFAULT: dict[str, str] = {name: module.DEFAULT for name, module in TASKS.items()}  # the model if none is named
SIZES = ("tiny", "small", "base")


def preset(task: str, model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    table = TASKS[task]
    known(model, table.PRESETS, "model")
    return table.preset(model, known(size, SIZES, "size"))


def suited(task: str, model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config; anything the user sets wins."""
    return TASKS[task].suited(model)


def about(task: str) -> dict[str, str]:
    """The presets of a task, with a line on each."""
    return TASKS[task].ABOUT
