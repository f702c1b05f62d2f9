"""seqloom report"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.cli.arguments import output_name


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders: one, several to compare, or the folder of a recipe with members."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            callback=output_name,
            help="File to write (default: report.html; for one run, in its folder).",
        ),
    ] = None,
) -> None:
    """Write a report of a run: scores, curves, errors, examples, data, settings. Several runs are compared on one page.

    It is a single HTML file that needs no network. Example: seqloom report runs/gru runs/lstm --output both.html
    """
    from pathlib import Path

    from seqloom.runs.evaluate.report_files import write_report

    page = write_report([Path(run) for run in runs], None if output is None else Path(output))
    typer.echo(str(page))
