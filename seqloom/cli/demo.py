"""seqloom demo"""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    output: Annotated[str, typer.Option("--output", "-o", help="Folder for the run.")] = "runs/demo",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Train for fewer updates: faster, and a worse model.")
    ] = None,
) -> None:
    """Learn English pronunciation on two CPU cores in about two minutes, and see what the model looks at."""
    from pathlib import Path
    from shutil import get_terminal_size

    from seqloom.runs.demo import STEPS, WORDS
    from seqloom.runs.demo import demo as run_demo

    typer.echo("Training a small GRU with attention to pronounce English words (CMUdict) …")
    result = run_demo(Path(output), steps or STEPS)
    if result is None:
        raise typer.Exit(130)
    scores = result.scores.metrics
    low, high = result.scores.intervals["per"]
    typer.echo(f"\nOn {result.scores.count:,} words it has never seen:")
    typer.echo(f"  phoneme error rate {scores['per']:.1f} %  (95 %: {low:.1f} … {high:.1f})")
    typer.echo(f"  words all right    {scores['exact_match']:.1f} %\n")
    for word, sounds in zip(WORDS, result.model.predict(WORDS), strict=True):
        typer.echo(f"  {word:<16} {sounds}")
    typer.echo(f"\nWhere it looked in {WORDS[0]!r} (a row a phoneme, a column a letter):\n")
    columns = get_terminal_size().columns
    for line in result.model.attention(WORDS[0]).text(columns - 2).splitlines():
        typer.echo(f"  {line}")
    typer.echo(f"\nThe run is in {output}. Try your own words:\n  echo rhythm | seqloom predict {output}")
