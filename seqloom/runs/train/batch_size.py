"""How many examples a batch holds, chosen by how many there are, and a note where updates are few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seqloom.data.batches.batch_source import PreparedData
from seqloom.plural import counted
from seqloom.runs.train.session import Session
from seqloom.training.settings import FEW_UPDATES, MIN_ROWS, Training, default_batch_rows, planned_updates


def batch_rows(training: Mapping[str, Any], data: PreparedData, own_files: bool) -> tuple[int | None, list[str]]:
    """How many examples a batch holds, by how many there are, and a note if that is fewer than usual. Batches of
    running text stay as they are. `own_files`: the validation data are files, no share of the training data."""
    usual = training["batch_rows"]
    if not usual or not getattr(data.train, "by_rows", True):
        return usual, []
    aside = 0 if own_files or data.valid is None else len(data.valid)  # counted, so that all folds get the same
    rows = default_batch_rows(usual, len(data.train) + aside, Training.of(dict(training)))
    if rows == usual:
        return usual, []
    examples = f"{len(data.train):,} examples"
    return rows, [f"batches of {rows} rows, not {usual}, as there are {examples} (--batch-rows chooses)"]


def few_updates(session: Session) -> Iterator[str]:
    """A note where a training is likely to end before the model has learned anything."""
    settings = session.settings
    updates = planned_updates(settings, len(session.loop.plan))
    if updates is not None and updates < FEW_UPDATES:
        smaller = " or lower --batch-rows" if (settings.batch_rows or 0) > MIN_ROWS else ""
        epochs = counted(settings.epochs, "epochs")
        yield f"only {counted(updates, 'updates')} in {epochs}, which may be too few: raise --epochs{smaller}"
