"""The tasks by name: a folder each, whose modules are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.errors import known
from seqloom.tasks import classify, generate, mask, table, tag, translate, vectors
from seqloom.tasks.about import About

if TYPE_CHECKING:
    from seqloom.tasks.shared.task import Task

TASKS: dict[str, About] = {
    "translate": translate.ABOUT,
    "classify": classify.ABOUT,
    "table": table.ABOUT,
    "tag": tag.ABOUT,
    "generate": generate.ABOUT,
    "mask": mask.ABOUT,
    "vectors": vectors.ABOUT,
}


def about(name: str) -> About:
    return TASKS[known(name, TASKS, "task")]


def task(name: str) -> Task[Any]:
    return import_module(f"{about(name).home}.task").TASK


def dataset_files(names: Iterable[str | Path], split: str, task: str) -> list[str]:
    """Names of datasets that the task learns from, and NAME:SPLIT, replaced by the files of that split."""
    from seqloom.data.datasets import catalog

    return catalog.resolve(names, split, task, about(task).reads)
