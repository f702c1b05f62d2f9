"""The batch size, chosen by the size of the data, and a note if there will be few updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seqloom.data.batches.batch_source import PreparedData
from seqloom.plural import counted
from seqloom.runs.train.session import Session
from seqloom.training.settings import FEW_UPDATES, MIN_ROWS, Training, default_batch_rows, planned_updates


def batch_rows(training: Mapping[str, Any], data: PreparedData, own_files: bool) -> tuple[int | None, list[str]]:
    """The rows of a batch, by the number of examples, and a note if they are fewer than the default. Batches of running
    text keep the default. `own_files`: the validation data are files of their own, no share of the training data."""
    default = training["batch_rows"]
    if not default or not getattr(data.train, "by_rows", True):
        return default, []
    held_out = 0 if own_files or data.valid is None else len(data.valid)  # counted, so that all folds get the same
    rows = default_batch_rows(default, len(data.train) + held_out, Training.of(dict(training)))
    if rows == default:
        return default, []
    examples = f"{len(data.train):,} examples"
    return rows, [f"batches of {rows} rows, not {default}, as there are {examples} (--batch-rows chooses)"]


def few_updates_note(session: Session) -> Iterator[str]:
    """A note if a training is likely to end before the model has learned anything."""
    settings = session.settings
    updates = planned_updates(settings, len(session.loop.plan))
    if updates is not None and updates < FEW_UPDATES:
        smaller = " or lower --batch-rows" if (settings.batch_rows or 0) > MIN_ROWS else ""
        epochs = counted(settings.epochs, "epochs")
        yield f"only {counted(updates, 'updates')} in {epochs}, which may be too few: raise --epochs{smaller}"
