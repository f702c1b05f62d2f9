"""A job: everything the user asks of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqloom.errors import is_known
from seqloom.runs import config as configs
from seqloom.tasks.registry import TASKS

Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The keywords of `seqloom.train`, whose docstring explains each. `resolve` makes a complete config of it."""

    task: str
    files: Files
    output: str | Path
    valid: Files | float | None = None
    test: Files | None = None
    model: str | Mapping[str, Any] | None = None
    size: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: str | Path | None = None
    device: str = "auto"
    resume: bool = False
    cache: Path | None = None
    recorded: bool = False  # a recipe on its own data: defaults are those with which its score was recorded

    def __post_init__(self) -> None:
        """Give settings their current names. A recipe sets the task later, by `replace`, which comes here again."""
        for name in ("data", "training") if is_known(self.task, TASKS) else ():
            object.__setattr__(self, name, configs.section(self.task, name, getattr(self, name)))

    @property
    def folder(self) -> Path:
        return Path(self.output)

    @property
    def names(self) -> list[str]:
        return file_names(self.files)


def file_names(files: Files) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
