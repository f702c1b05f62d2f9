"""Shared by the commands: usage errors, names of outputs, and runs before files in the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from seqloom.errors import SeqloomError
from seqloom.setting_names import OPTIONS, check_equal

MOST_ROWS = 1_000_000  # in a batch
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer typers carry inside under another name


def output_name(output: str | None) -> str | None:
    """Callback of options that name a file or a folder to write: an empty name is an error."""
    if output == "":
        raise UsageError("the output has no name: ''")
    return output


def current_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a command; the value of an `earlier_…` one, an option's old name, goes under the new name."""
    options = dict(given)
    for old, new in OPTIONS.items():
        value, name = options.pop(f"earlier_{old[2:]}"), new[2:].replace("-", "_")
        if None not in (value, options[name]):
            check_equal(old, new, value == options[name], new)
        options[name] = options[name] if value is None else value
    return options


def runs_and_files(run: str, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """The runs among the arguments of a command, and the files after them. After the first run, a name of both a run
    and a dataset means the dataset; `./NAME` is the run."""
    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.runs.folder.ensembles import is_run

    count = next((index for index, name in enumerate(more) if name in DATASETS or not is_run(name)), len(more))
    rest = list(more[count:])
    if len(rest) > 1 and rest[0] not in DATASETS and rest[0] != "-" and not Path(rest[0]).exists():
        raise SeqloomError(f"{rest[0]}: no such run, and no such file")
    return [run, *more[:count]], rest
