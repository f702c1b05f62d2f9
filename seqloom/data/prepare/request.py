"""The arguments of `prepare`, of every task."""

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
    # Vocabularies of another run as JSON, by name; of another task only the shared ones. None: learned from the
    # training examples.
    vocabularies: Mapping[str, Any] | None = None

    @property
    def valid_files(self) -> list[str]:
        return self.valid if isinstance(self.valid, list) else []

    @property
    def share(self) -> float | Fold:
        """The share held out of the training files; 0 with validation files."""
        return 0.0 if isinstance(self.valid, list) else self.valid
