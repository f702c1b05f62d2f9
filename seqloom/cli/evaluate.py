"""seqloom evaluate"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seqloom.cli import completion
from seqloom.cli.arguments import UsageError, output_name, runs_and_files
from seqloom.cli.data import COLUMNS, DELIMITER, ENCODING, HEADER
from seqloom.decoding.search_options import AUTO, BEAM, GREEDY, SAMPLE
from seqloom.metrics.metric_table import task_metrics
from seqloom.metrics.text.moses_tokenizer import LANGUAGES, MOSES
from seqloom.options import without_none

TOKENIZERS = ("13a", "intl", "zh", "char", "none", *MOSES)


def evaluate(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    files: Annotated[
        list[str],
        typer.Argument(
            help="More runs, to predict together by the mean of their probabilities; then test examples in the formats "
            "of train, or a dataset.",
            autocompletion=completion.datasets,
        ),
    ],
    columns: Annotated[str | None, typer.Option(help=f"{COLUMNS} Default: as in training.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Skip and count broken lines, instead of stopping.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy search.")] = 1,
    alpha: Annotated[
        float, typer.Option(help="Length penalty: beam scores are divided by the length to this power.")
    ] = 1.0,
    decoding: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="How to decode, by name: greedy, sample, beam or one that was added, with settings of its own as "
            "NAME:key=value,key=value (default: by --beam).",
            autocompletion=completion.offer(AUTO, GREEDY, SAMPLE, BEAM),
        ),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Lines with the same source are one example with several references.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            help=f"Only these metrics, separated by commas; for translate: {', '.join(task_metrics('translate'))}.",
            autocompletion=completion.metrics,
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer of BLEU: sacreBLEU's 13a, intl, zh, char or none; or moses:LANG, lower-cased Moses tokens "
            f"of {', '.join(LANGUAGES)}, as in papers on Multi30k (default: 13a).",
            autocompletion=completion.offer(*TOKENIZERS),
        ),
    ] = None,
    predictions: Annotated[
        str | None, typer.Option(callback=output_name, help="Write the predictions to this file, one per line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)] = "auto",
) -> None:
    """Score a model, or several together, on held-out examples, with 95 % intervals and signatures.

    For translate, columns of a TSV after the second are further references: the closest one counts.
    """
    from dataclasses import replace
    from pathlib import Path

    from seqloom.decoding.decoding_table import parse_decoding
    from seqloom.decoding.search_options import Search
    from seqloom.files import write_output
    from seqloom.plural import counted
    from seqloom.runs.load import load

    runs, files = runs_and_files(run, files)
    if not files:
        raise UsageError(f"{', '.join(runs)}: all are runs; name the test examples after them")
    chosen = None if metrics is None else [name.strip() for name in metrics.split(",")]
    search = Search(beam=beam, alpha=alpha, decoding=parse_decoding(decoding or AUTO))
    model = load(*runs, device=device)
    format_options = without_none({"header": header, "delimiter": delimiter, "encoding": encoding})
    reading = None  # as in training
    if columns is not None or skip_bad is not None or format_options:
        reading = replace(model.reading(columns=columns, skip_bad=skip_bad), **format_options)
    options = without_none(
        {"together": together or None, "tokenize": tokenize, "decoding": decoding, "beam": beam if beam > 1 else None}
    )
    if options and (task := model.config["task"]) != "translate":
        raise UsageError(f"--{next(iter(options))} is for translations, and {run} is a model of the task {task}")
    for name in ("beam", "decoding"):
        options.pop(name, None)
    result = model.evaluate(files, search, metrics=chosen, reading=reading, **options)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    if predictions is not None:
        write_output(Path(predictions), "".join(f"{text}\n" for text in result.predictions))
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False))
        return
    how = f"beam {beam}" if search.kind == BEAM else search.kind
    how = f", {how}" if model.config["task"] == "translate" else ""
    ensemble = f", {len(result.members)} models together" if result.members else ""
    typer.echo(f"{counted(result.count, result.unit)}{ensemble}{how}")
    rows = list(result.rows(all_of_them=chosen is not None))
    width = max(12, *(len(name) for name, *_ in rows))
    for name, value, interval, signature in rows:
        shown = "" if interval is None else f"   95 %: {interval[0]:.2f} … {interval[1]:.2f}"
        typer.echo(f"  {name:<{width}} {value:8.2f}{shown:<26}  {signature}".rstrip())
