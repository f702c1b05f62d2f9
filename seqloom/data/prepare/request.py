"""What every task's `prepare` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from seqloom.data.splits.split import Fold

Options = TypeVar("Options", covariant=True)


@dataclass(frozen=True)
class PrepareRequest(Generic[Options]):
    train: list[str]  # files
    valid: list[str] | float | Fold  # files, the share of the training examples to hold out (0: none), or a fold
    options: Options  # the `data` section of the run's configuration
    seed: int
    cache: Path | None = None  # a folder; else $SEQLOOM_CACHE or ~/.cache/seqloom
    # The vocabularies of another run, as JSON by name, to be used as they are; of another task's run only those that
    # both have. None: they come from the training examples alone.
    vocabularies: Mapping[str, Any] | None = None

    @property
    def valid_files(self) -> list[str]:
        return self.valid if isinstance(self.valid, list) else []

    @property
    def share(self) -> float | Fold:
        """What is held out of the training files: nothing where there are validation files."""
        return 0.0 if isinstance(self.valid, list) else self.valid
