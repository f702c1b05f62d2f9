"""seqloom predict"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.errors import SeqloomError


def predict(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    file: Annotated[str, typer.Argument(help="Sources, one a line, or TSV, CSV, JSONL; - reads standard input.")] = "-",
    columns: Annotated[
        str | None, typer.Option(help="The column of the sources, by name in the first line or by number from 1.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1 is greedy.")] = 1,
    n_best: Annotated[int, typer.Option(help="So many answers a line: number, score and text, with tabs.")] = 1,
    alpha: Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")] = 1.0,
    sample: Annotated[bool, typer.Option("--sample", help="Draw from the model's distribution.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1 likelier, above 1 more varied.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sample among the likeliest that hold this mass.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 7,
    batch: Annotated[int, typer.Option(help="Sentences a batch.")] = 64,
    stream: Annotated[bool, typer.Option("--stream", help="Answer each line as it comes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Write a target for every source. Empty lines stay empty, so that lines stay side by side."""
    import sys

    from seqloom.data.columns import Reading
    from seqloom.data.read import read_sources
    from seqloom.decoding.search import Search
    from seqloom.runs.translator import load

    if not sample and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise SeqloomError("temperature, top-k and top-p shape what is sampled: add --sample")
    search = Search(
        beam=n_best if beam == 1 and not sample else beam,
        n_best=n_best,
        alpha=alpha,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    model = load(run, device)
    stream = stream or (file == "-" and sys.stdin.isatty())
    rows, ahead = (1, 1) if stream else (batch, 16)
    sources = read_sources(file, Reading(columns=columns))
    for number, answers in enumerate(model.answers(sources, search, rows, ahead), 1):
        for answer in answers:
            line = answer.text if n_best == 1 else f"{number}\t{answer.score:.4f}\t{answer.text}"
            sys.stdout.write(line.replace("\n", " ") + "\n")
        if stream:
            sys.stdout.flush()
