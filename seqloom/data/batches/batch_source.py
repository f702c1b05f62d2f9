"""The protocols between data and training: batches, and sources of batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from seqloom.data.batches.bucketing import Plan


class AnyBatch(Protocol):
    """A batch or micro-batch. Its contents are agreed between the source and the objective."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Indices of its examples in the source."""
        ...

    def to(self, device: torch.device | str) -> Any: ...

    def micro_batches(self, n: int) -> list[Any]:
        """Split into at most `n` micro-batches of nearly equal size, for when memory runs out."""
        ...

    def zero_weight_row(self) -> Any:
        """A row of weight zero, for a rank that has no rows but must take part in the exchange."""
        ...


class BatchSource(Protocol):
    """Encoded examples that can be trained on, in memory or mapped from disk."""

    @property
    def fingerprint(self) -> str:
        """Of the data and its encoding, independent of its path."""
        ...

    @property
    def folder(self) -> Path | None:
        """Its cache folder; None: in memory."""
        ...

    def __len__(self) -> int: ...

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        """The batches of an epoch; the same (seed, epoch) gives the same plan."""
        ...

    def batch(self, rows: np.ndarray) -> AnyBatch:
        """The examples `rows` of a plan, in this order, on the host."""
        ...

    def count(self, rows: np.ndarray) -> int:
        """The number of labels in `rows`: the `Loss.count` of their batch."""
        ...

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: about proportional to the time of each batch."""
        ...


class PreparedData(Protocol):
    """Data ready for training, as a task's `prepare` gives it."""

    @property
    def train(self) -> BatchSource: ...

    @property
    def valid(self) -> BatchSource | None:
        """None: nothing is held out."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes for the user, in sentences."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """Statistics as JSON: the data.json of the run."""
        ...

    def vocabularies(self) -> Mapping[str, Any]:
        """Vocabularies as JSON: `{"source": …}` becomes source.json of the run."""
        ...

    def validation_examples(self) -> list[Any]:
        """The held-out examples, as `Runner.evaluation_details` takes them."""
        ...
