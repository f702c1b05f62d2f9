"""seqloom report"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.cli.usage import named


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders: one, several to compare, or the one of a recipe with members."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", callback=named, help="The page (default: report.html, of one run in its own folder)."
        ),
    ] = None,
) -> None:
    """Write a page that tells of a run: scores, curves, errors, examples, data, settings. Several runs share one page.

    One file that needs no network: it can be mailed. Example: seqloom report runs/gru runs/lstm --output both.html
    """
    from pathlib import Path

    from seqloom.runs.evaluate.report_files import together

    page = together([Path(run) for run in runs], None if output is None else Path(output))
    typer.echo(str(page))
