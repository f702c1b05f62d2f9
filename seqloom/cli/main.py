"""`seqloom`: the commands. torch is imported inside them, so that `--help` answers at once."""

from __future__ import annotations

import sys

import typer

from seqloom.cli import data, demo, evaluate, exchange, info, predict, train
from seqloom.errors import SeqloomError

app = typer.Typer(
    name="seqloom",
    help="Train, compare, look inside and serve sequence models, from the RNN to the Transformer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo")(demo.demo)
app.command(name="train")(train.train)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="predict")(predict.predict)
app.command(name="info")(info.info)
app.command(name="import")(exchange.import_)
app.command(name="export")(exchange.export)
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        from seqloom.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def run() -> None:
    """What goes wrong on the user's side is one line and a non-zero exit; anything else is our fault and is shown."""
    try:
        app()
    except SeqloomError as error:
        _leave(str(error), 1)
    except OSError as error:
        _leave(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    except (MemoryError, RuntimeError) as error:
        # By name: torch, whose error it may be, is not imported for commands that do not need it.
        if type(error).__name__ not in ("MemoryError", "OutOfMemoryError"):
            raise
        _leave("out of memory; try a smaller --size or --batch-rows", 1)


def _leave(message: str, status: int) -> None:
    print(f"seqloom: {message}", file=sys.stderr)
    sys.exit(status)
