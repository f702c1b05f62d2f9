"""seqloom data"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seqloom.errors import known

app = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look at data before training on it."""


@app.command()
def check(
    task: Annotated[str, typer.Argument(help="translate")],
    files: Annotated[list[str], typer.Argument(help="As for train; later files are searched for the first's sources.")],
    max_length: Annotated[int | None, typer.Option(help="Characters a side at most. [5000]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Name every broken line as file:line: reason, then give statistics. Broken lines make the exit status 1."""
    from seqloom.data.check import check as check_files

    known(task, ("translate",), "task")
    report = check_files(files, max_length=max_length)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        for problem in report:
            typer.echo(str(problem))
        for one in report.to_json()["groups"]:
            _show(one)
        typer.echo(f"{report.errors:,} broken lines, {report.warnings:,} warnings")
    if report.errors:
        raise typer.Exit(1)


def _show(facts: dict, indent: str = "") -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            inner = "  ".join(f"{key} {_number(one)}" for key, one in value.items() if not isinstance(one, dict))
            typer.echo(f"{indent}{name}: {inner}")
            _show({key: one for key, one in value.items() if isinstance(one, dict)}, indent + "  ")
        else:
            typer.echo(f"{indent}{name}: {_number(value)}")


def _number(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
