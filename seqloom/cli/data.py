"""seqloom data"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from seqloom.cli import completion
from seqloom.cli.arguments import output_name
from seqloom.errors import known
from seqloom.tasks.registry import TASKS, about, dataset_files

COLUMNS = "Columns of source and targets, by name (text,label) or by number from 1 (2,5); for JSON lines, keys."

HEADER = "Whether the first line names the columns (default: detected)."
DELIMITER = "Separator of columns: tab, comma, semicolon, bar or the character itself (default: detected)."
ENCODING = (
    "Encoding of the files: utf-8, utf-16, cp1252 (Latin-1), gb18030 … (default: UTF-8, else detected, with a note)."
)

_tasks = completion.offer(*TASKS)

app = typer.Typer(help="List and fetch datasets; check data before training on it.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """List and fetch datasets; check data before training on it."""


@app.command(name="list")
def list_(
    task: Annotated[
        str | None, typer.Option(help="Only those of this task: translate, classify, tag, …", autocompletion=_tasks)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with all facts.")] = False,
) -> None:
    """List the datasets that have a name, their sizes, and where they are.

    embedded: comes with a package; in the mirror: under $SEQLOOM_DATA; cached: downloaded before; by hand: cannot be
    downloaded automatically, `get` prints where to put it.
    """
    from seqloom.data.datasets import catalog

    chosen = list(catalog.DATASETS.values())
    if task is not None:
        known(task, catalog.TASKS, "task")
        chosen = [dataset for dataset in chosen if dataset.task == task]
    if as_json:
        facts = {dataset.name: catalog.facts(dataset) for dataset in chosen}
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"{'name':<24} {'task':<9} {'train':>9} {'valid':>7} {'test':>7}  {'licence':<15}{'where'}")
    for dataset in chosen:
        sizes = [f"{dataset.sizes[split]:,}" if split in dataset.sizes else "-" for split in ("train", "valid", "test")]
        if "all" in dataset.sizes:
            sizes[0] = f"{dataset.sizes['all']:,}"
        train, valid, test = sizes
        typer.echo(
            f"{dataset.name:<24} {dataset.task:<9} {train:>9} {valid:>7} {test:>7}  {dataset.licence:<15}"
            f"{catalog.state(dataset)}"
        )


@app.command()
def get(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Datasets, as `list` names them.", autocompletion=completion.datasets),
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", callback=output_name, help="Write the splits to this folder.")
    ] = None,
) -> None:
    """Fetch datasets, verify them by SHA-256, write their splits and print where they are."""
    from pathlib import Path

    from seqloom.data.datasets import catalog

    for name in names:
        catalog.find(name)  # report a wrong name before anything is fetched
    for name in names:
        folder = None if output is None else Path(output) if len(names) == 1 else Path(output) / name
        found = catalog.get(name, folder)
        for path in found:
            typer.echo(str(path))
        if not found:
            typer.echo(f"{name}: generated when it is used; nothing to fetch", err=True)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A dataset, as `list` names it.", autocompletion=completion.datasets)],
    count: Annotated[int, typer.Option(min=0, help="How many examples.")] = 3,
) -> None:
    """Show what a dataset is, its licence and its first examples."""
    from itertools import islice

    from seqloom.data.datasets import catalog
    from seqloom.data.datasets.download import local_file

    dataset = catalog.find(name)
    where = catalog.state(dataset)
    sizes = ", ".join(f"{split} {size:,}" for split, size in dataset.sizes.items())
    typer.echo(f"{name}: {dataset.about}\n{dataset.task}; {dataset.unit}: {sizes}")
    typer.echo(f"licence: {dataset.licence}\n{dataset.citation}\n{dataset.home}\n{where}")
    if where == "needs [demo]" or not all(map(local_file, dataset.all_files())):
        return
    first = next(iter(dataset.sizes))
    for example in islice(dataset.examples(first), count):
        typer.echo(f"  {_short(example)}")


def _short(value: Any) -> str:
    """An example in one line; arrays by their shape."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return "  ".join(map(_short, value))
    if hasattr(value, "shape") and value.shape:
        return f"{value.dtype}{list(value.shape)}"
    text = " ".join(str(value).split())
    return text if len(text) <= 90 else f"{text[:89]}…"


@app.command()
def check(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS)}.", autocompletion=_tasks)],
    files: Annotated[
        list[str],
        typer.Argument(
            help="Files or datasets, as for train; the second and later ones are searched for sources of the first.",
            autocompletion=completion.datasets,
        ),
    ],
    max_length: Annotated[
        int | None, typer.Option(help="At most this many characters per side (default: 5000).")
    ] = None,
    columns: Annotated[str | None, typer.Option(help=COLUMNS)] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    every: Annotated[bool, typer.Option("--all", help="List every broken and suspicious line by itself.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report broken lines as file:line: error: reason, and suspicious ones as warnings; then print statistics.

    Each kind of problem is reported once, with its count and its first lines, in the order of the lines.

    Broken lines make the exit status 1; warnings do not.
    """
    from importlib import import_module

    from seqloom.data.checks.problems import compiler_line as shown
    from seqloom.data.files.columns import ReadOptions
    from seqloom.plural import counted

    module = about(task).check
    report = import_module(module if "." in module else f"seqloom.data.checks.{module}").check(
        dataset_files(files, "train", task),
        max_length=max_length,
        reading=ReadOptions(columns=columns, header=header, delimiter=delimiter, encoding=encoding),
    )
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        for line in map(shown, report.ordered()) if every else map(str, report.kinds):
            typer.echo(line)
        for note in report.notes:
            typer.echo(f"note: {note}")
        for line in (line for one in report.to_json()["groups"] for line in one["told"]):
            typer.echo(line)
        typer.echo(f"{counted(report.errors, 'broken lines')}, {counted(report.warnings, 'warnings')}")
    if report.errors:
        raise typer.Exit(1)
