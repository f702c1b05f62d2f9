"""What the training loop reads: encoded examples of any task, and one batch of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from seqloom.data.batches.bucketing import Plan


class AnyBatch(Protocol):
    """A batch, or a part of one. What else is in it is between the source and the objective."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Which examples of the source."""
        ...

    def to(self, device: torch.device | str) -> Any: ...

    def micro_batches(self, n: int) -> list[Any]:
        """Its rows split into at most `n` nearly equal parts: micro-batches, for when memory runs out."""
        ...

    def zero_weight_row(self) -> Any:
        """A row of it that counts for nothing, for a rank that has none of its own and must take part all the same."""
        ...


class BatchSource(Protocol):
    """Encoded examples that can be trained on, in memory or mapped from disk."""

    fingerprint: str  # of the data and of how it was encoded, not of where it lies

    @property
    def folder(self) -> Path | None:
        """Where they are kept; None: in memory."""
        ...

    def __len__(self) -> int: ...

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        """The batches of an epoch; the same (seed, epoch) gives the same plan."""
        ...

    def batch(self, rows: np.ndarray) -> AnyBatch:
        """The examples `rows` of a plan, in this order, on the host."""
        ...

    def count(self, rows: np.ndarray) -> int:
        """How many labels they hold: what the objective's `Loss.count` says of their batch."""
        ...

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches], about proportional to the time that each batch takes."""
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
        """What the user should know, in sentences."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What the data is like, as JSON can hold it: the run's data.json."""
        ...

    def vocabularies(self) -> dict[str, Any]:
        """What predictions need of the data, as JSON: `{"source": …}` becomes source.json in the run."""
        ...

    def validation_examples(self) -> list[Any]:
        """The held-out examples, as `Runner.evaluation_details` takes them."""
        ...
