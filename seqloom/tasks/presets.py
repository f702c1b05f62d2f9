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

__all__ = ["SIZES", "about", "default_model", "merge", "preset", "presets_of", "suited"]

SIZES = ("tiny", "small", "base")


def presets_of(task: str) -> ModuleType:
    """The module with the presets of a task."""
    return import_module(f"{registry.about(task).home}.presets")


def default_model(task: str) -> str:
    """The model if none is named."""
    return presets_of(task).DEFAULT


def preset(task: str, model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    table = presets_of(task)
    known(model, table.PRESETS, "model")
    return table.preset(model, known(size, SIZES, "size"))


def suited(task: str, model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config; anything the user sets wins."""
    return presets_of(task).suited(model)


def about(task: str) -> dict[str, str]:
    """The presets of a task, with a line on each."""
    return presets_of(task).ABOUT
