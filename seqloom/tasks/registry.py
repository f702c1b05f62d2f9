"""The tasks by name, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from seqloom.errors import known

if TYPE_CHECKING:
    from seqloom.tasks.shared.task import Task

# What each does, in a line for the command line.
TASKS = {
    "translate": "pairs of source and target, of any kind and length",
    "classify": "a label, several labels or a number for a text",
    "table": "a class or a number from the other columns of a table",
    "tag": "a tag for each word of a sentence: parts of speech, names",
    "generate": "plain text, or lines, of which the next token is guessed",
    "mask": "plain text, a text a line, to pretrain an encoder by guessing hidden tokens",
    "vectors": "plain text, a text a line, for a vector of every word",
}


def task(name: str) -> Task:
    return import_module(f"seqloom.tasks.{known(name, TASKS, 'task')}.task").TASK
