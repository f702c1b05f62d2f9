"""What commands share: errors in how one was given, and runs before files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from seqloom.errors import SeqloomError

MOST_ROWS = 1_000_000  # in a batch
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer typers carry inside under another name


def named(output: str | None) -> str | None:
    """What an option is called back with whose value names a file or a folder to write."""
    if output == "":
        raise UsageError("the output has no name: ''")
    return output


def members(run: str, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """All runs that a command was given, and what stands behind the last of them. Where a run has the name of a
    dataset, that is what is meant behind the first; `./NAME` is the run."""
    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.runs.folder.ensembles import is_run

    count = next((place for place, one in enumerate(more) if one in DATASETS or not is_run(one)), len(more))
    rest = list(more[count:])
    if len(rest) > 1 and rest[0] not in DATASETS and rest[0] != "-" and not Path(rest[0]).exists():
        raise SeqloomError(f"{rest[0]}: no such run, and no such file")
    return [run, *more[:count]], rest
