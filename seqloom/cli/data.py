"""seqloom data"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from seqloom.errors import known

COLUMNS = "Source and targets, by name in the first line (text,label) or by number from 1 (2,5); keys of JSON lines."

app = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look at data before training on it."""


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="translate")],
    files: Annotated[list[str], typer.Argument(help="As for train; later files are searched for the first's sources.")],
    max_length: Annotated[int | None, typer.Option(help="Characters a side at most (default: 5000).")] = None,
    columns: Annotated[str | None, typer.Option(help=COLUMNS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Name every broken line as file:line: error: reason, and every odd one as a warning; then give statistics.

    Broken lines make the exit status 1; warnings do not.
    """
    from seqloom.data.check import check as check_files
    from seqloom.data.columns import Reading

    known(task, ("translate",), "task")
    report = check_files(files, max_length=max_length, reading=Reading(columns=columns))
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        for problem in report:
            typer.echo(f"{problem.file}:{problem.line}: {problem.kind}: {problem.reason}")
        for note in report.notes:
            typer.echo(f"note: {note}")
        for one in report.to_json()["groups"]:
            _show(one)
        typer.echo(f"{report.errors:,} broken lines, {report.warnings:,} warnings")
    if report.errors:
        raise typer.Exit(1)


def _show(facts: dict[str, Any]) -> None:
    """The statistics of one group of files, in three lines."""
    typer.echo(
        f"{', '.join(facts['files'])}: {facts['pairs']:,} pairs in {facts['lines']:,} lines ({facts['form']}), "
        f"{facts['distinct_sources']:,} distinct sources, {facts['several_targets']:,} of them with several targets, "
        f"{facts['same']:,} pairs with target = source"
    )
    for side in ("source", "target"):
        spread = "; ".join(f"{unit} {_spread(facts[side][unit])}" for unit in ("characters", "words"))
        typer.echo(f"  {side}: {spread}; {facts[side]['distinct_characters']:,} distinct characters")


def _spread(numbers: dict[str, float]) -> str:
    mean, median, most, longest = (numbers[name] for name in ("mean", "median", "p95", "longest"))
    return f"mean {mean:.1f}, median {median:g}, 95 % ≤ {most:g}, longest {longest:,}"
