"""What commands share: usage errors, output names, and run folders before files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from seqloom.errors import SeqloomError
from seqloom.setting_names import OPTIONS, check_one

MOST_ROWS = 1_000_000  # in a batch
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer typers carry inside under another name


def output_name(output: str | None) -> str | None:
    """Callback of options that name a file or a folder to write: an empty name is an error."""
    if output == "":
        raise UsageError("the output has no name: ''")
    return output


def current_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a command with the value of each `earlier_…` one, the old name of an option, under its new name."""
    found = dict(given)
    for old, new in OPTIONS.items():
        value, name = found.pop(f"earlier_{old[2:]}"), new[2:].replace("-", "_")
        if None not in (value, found[name]):
            check_one(old, new, value == found[name], new)
        found[name] = found[name] if value is None else value
    return found


def runs_and_files(run: str, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """All runs that a command was given, and the files after them. After the first run, a word that is both a run and a
    dataset means the dataset; `./NAME` is the run."""
    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.runs.folder.ensembles import is_run

    count = next((place for place, one in enumerate(more) if one in DATASETS or not is_run(one)), len(more))
    rest = list(more[count:])
    if len(rest) > 1 and rest[0] not in DATASETS and rest[0] != "-" and not Path(rest[0]).exists():
        raise SeqloomError(f"{rest[0]}: no such run, and no such file")
    return [run, *more[:count]], rest
