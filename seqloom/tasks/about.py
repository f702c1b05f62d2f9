"""What a task says of itself before anything heavy is imported: for help, data checks, datasets and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Wording(NamedTuple):
    """What reports and cards call a task and its data."""

    does: str  # "a model that …": a clause
    pipeline: str  # as model hubs name the task
    kind: str  # a tag for model hubs
    unit: str  # what its data is made of
    label: str  # what its loss is divided by
    tokens: bool = False  # whether it predicts tokens, which depend on the settings of the data
    right: str = "predictions that are correct"  # what accuracy counts

    def loss(self, numbers: bool) -> str:
        """The unit of the loss; `numbers`: the targets are numbers, so that it is no log-probability."""
        return f"{'squared error' if numbers else 'nats'} per {self.label}"

    @property
    def labels(self) -> str:
        return f"{self.label}s"


@dataclass(frozen=True, kw_only=True)
class About:
    """A task's package has one, by the name ABOUT; its modules `task` and `presets` are imported when they are needed.

    `check` may also be the full name of a module with a function `check`, as those of data/checks have.
    """

    home: str  # the package
    line: str  # what it learns from, for the command line
    check: str  # the module of data/checks by which `seqloom data check` looks through its files
    examples: str  # the task in whose form it takes examples from Python, see data/formats/python_examples.py
    words: Wording
    reads: tuple[str, ...] = ()  # other tasks whose named datasets it learns from, leaving their labels
