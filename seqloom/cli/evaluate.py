"""seqloom evaluate"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seqloom.cli import complete
from seqloom.cli.data import COLUMNS, DELIMITER, ENCODING, HEADER
from seqloom.cli.usage import UsageError, members, named
from seqloom.metrics.text.moses_tokenizer import LANGUAGES, MOSES

TOKENIZERS = ("13a", "intl", "zh", "char", "none", *MOSES)


def evaluate(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    files: Annotated[
        list[str],
        typer.Argument(
            help="More runs, to answer together by the mean of their probabilities; then test examples, as train reads "
            "them, or a dataset.",
            autocompletion=complete.datasets,
        ),
    ],
    columns: Annotated[str | None, typer.Option(help=f"{COLUMNS} (default: as the run was trained).")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Leave out broken lines and count them, instead of stopping.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1 is greedy.")] = 1,
    alpha: Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")] = 1.0,
    together: Annotated[
        bool, typer.Option("--together", help="Lines with one source are one example with several references.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Only these, commas between; of translate: per, cer, wer, exact_match, bleu, chrf.",
            autocompletion=complete.metrics,
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="BLEU's tokenizer: 13a, intl, zh, char or none, as of sacreBLEU; moses:LANG: lower-cased Moses tokens "
            f"of {', '.join(LANGUAGES)}, as papers on Multi30k have it (default: 13a).",
            autocompletion=complete.offer(*TOKENIZERS),
        ),
    ] = None,
    predictions: Annotated[
        str | None, typer.Option(callback=named, help="Write the predictions to this file, a line each.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=complete.devices)] = "auto",
) -> None:
    """Score a model, or several together, on held-out examples, with 95 % intervals and signatures.

    Of translations, columns of a TSV after the second are further references: the closest counts.
    """
    from dataclasses import replace
    from pathlib import Path

    from seqloom.decoding.search import Search
    from seqloom.files import write_output
    from seqloom.plural import counted
    from seqloom.runs.load import load

    runs, files = members(run, files)
    if not files:
        raise UsageError(f"{', '.join(runs)}: all are runs; name the test examples after them")
    chosen = None if metrics is None else [name.strip() for name in metrics.split(",")]
    search = Search(beam=beam, alpha=alpha)
    model = load(*runs, device=device)
    written = {"header": header, "delimiter": delimiter, "encoding": encoding}
    written = {name: value for name, value in written.items() if value is not None}
    asked = columns is not None or skip_bad is not None or written
    reading = replace(model.reading(columns=columns, skip_bad=skip_bad), **written) if asked else None
    how = {"together": together or None, "tokenize": tokenize, "beam": beam if beam > 1 else None}
    how = {name: value for name, value in how.items() if value is not None}
    if how and (task := model.config["task"]) != "translate":
        raise UsageError(f"--{next(iter(how))} is for translations, and {run} is a model of the task {task}")
    how.pop("beam", None)
    result = model.evaluate(files, search, metrics=chosen, reading=reading, **how)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    if predictions is not None:
        write_output(Path(predictions), "".join(f"{text}\n" for text in result.predictions))
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
        return
    way = f", {'greedy' if beam == 1 else f'beam {beam}'}" if model.config["task"] == "translate" else ""
    several = f", {len(result.members)} models together" if result.members else ""
    typer.echo(f"{counted(result.count, result.unit)}{several}{way}")
    rows = list(result.rows(all_of_them=chosen is not None))
    width = max(12, *(len(name) for name, *_ in rows))
    for name, value, interval, signature in rows:
        spread = "" if interval is None else f"   95 %: {interval[0]:.2f} … {interval[1]:.2f}"
        typer.echo(f"  {name:<{width}} {value:8.2f}{spread:<26}  {signature}".rstrip())
