"""How many examples a batch holds, chosen by how many there are, and a word where updates are few."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.data.batches.batch_source import Ready
from seqloom.plural import counted
from seqloom.runs.train.job import Settled
from seqloom.runs.train.session import Session
from seqloom.training.settings import FEW, LEAST_ROWS, Training, planned, suited_rows


def suit(settled: Settled, data: Ready) -> list[str]:
    """Choose how many examples a batch holds by how many there are, and say so; of running text and of pairs of words,
    which make examples of their own, as many as usual."""
    settings = settled.config["training"]
    if not settings["batch_rows"] or settled.config["task"] == "vectors" or not getattr(data.train, "by_rows", True):
        return []
    aside = 0 if isinstance(settled.valid, list) or data.valid is None or settled.brought else len(data.valid)
    count = len(data.train) + aside  # the same in every fold
    rows = suited_rows(settings["batch_rows"], count, Training.of(settings))
    usual, settings["batch_rows"] = settings["batch_rows"], rows
    if rows == usual:
        return []
    return [f"batches of {rows} rows, not {usual}, as there are {len(data.train):,} examples (--batch-rows chooses)"]


def few(session: Session) -> Iterator[str]:
    """A word where a training is likely to end before the model has learned anything."""
    settings = session.settings
    updates = planned(settings, len(session.loop.plan))
    if updates is not None and updates < FEW:
        smaller = " or lower --batch-rows" if (settings.batch_rows or 0) > LEAST_ROWS else ""
        epochs = counted(settings.epochs, "epochs")
        yield f"only {counted(updates, 'updates')} in {epochs}, which may be too few: raise --epochs{smaller}"
