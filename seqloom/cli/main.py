"""`seqloom`: the commands. torch is imported inside them, so that `--help` answers at once."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer

from seqloom.cli import (
    completion,
    data,
    demo,
    embed,
    evaluate,
    generate,
    help_language,
    import_export,
    info,
    laws,
    predict,
    recipes,
    report,
    standard_streams,
    train,
)
from seqloom.cli import settings as listed
from seqloom.cli.arguments import UsageError
from seqloom.cli.help_language import LANG
from seqloom.errors import SeqloomError, SettingError
from seqloom.setting_names import OPTIONS

app = typer.Typer(
    name="seqloom",
    help="Train, compare and look inside sequence models, from the RNN to the Transformer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo")(demo.demo)
app.command(name="train")(train.train)
app.command(name="settings")(listed.settings)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="predict")(predict.predict)
app.command(name="generate")(generate.generate)
app.command(name="embed")(embed.embed)
app.command(name="info")(info.info)
app.command(name="laws")(laws.laws)
app.command(name="report")(report.report)
app.command(name="recipes")(recipes.recipes)
app.command(name="import")(import_export.import_)
app.command(name="export")(import_export.export)
app.add_typer(data.app, name="data")

LONGEST = 1500  # characters of an error
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the versions and exit."),
    lang: Annotated[str | None, LANG()] = None,
) -> None:
    if version:
        from importlib.metadata import version as version_of
        from platform import python_version

        from seqloom.version import __version__

        typer.echo(f"seqloom {__version__} (python {python_version()}, torch {version_of('torch')})")
        raise typer.Exit
    if ctx.invoked_subcommand is None:  # a language alone
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def run() -> None:
    """Run the command line. User errors are one line and a non-zero exit status; others show a traceback."""
    standard_streams.prepare()
    try:
        _accept_shell_name(sys.argv)
        with completion.whole_words(), help_language.chosen(sys.argv[1:]):
            status = help_language.command(app)(prog_name="seqloom", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help, as far as it is not printed yet
            sys.exit(error.format_message() or error.exit_code)
        _exit(_usage_message(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _exit("stopped", 130)
    except SeqloomError as error:
        _exit(str(error), 2 if isinstance(error, SettingError) else 1)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        standard_streams.flush()
        sys.exit(1)
    except OSError as error:
        _exit(f"{error.filename or 'standard output, or a file'}: {error.strerror or error}", 1)
    except (MemoryError, RuntimeError) as error:
        # By name: commands that do not need torch do not import it.
        out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if not out_of_memory and "DefaultCPUAllocator" not in str(error):
            raise
        size = re.search(r"tried to allocate (\d+) bytes", str(error))  # torch's message on the CPU
        wanted = f": failed to allocate {int(size[1]):,} bytes" if size else ""
        _exit(f"out of memory{wanted}; try a smaller --size or --batch-rows", 1)
    else:
        sys.exit(status)


def _usage_message(error: Any) -> str:
    """What is wrong with the command line, what was probably meant, and which --help to read."""
    message = " ".join(error.format_message().split()).rstrip(".").replace(". Did you mean", "; did you mean")
    if near := getattr(error, "possibilities", None):
        message = f"{error.message}; did you mean {OPTIONS.get(near[0], near[0])!r}?"
    elif "did you mean" not in message and (near := _similar_command(error)):
        message += f"; did you mean {near!r}?"
    command = error.ctx.command_path if error.ctx else " ".join(["seqloom", *sys.argv[1:2]])
    more = " Try" if message.endswith("?") else "; try"
    return f"{message[:1].lower()}{message[1:]}{more} {command} --help"


def _similar_command(error: Any) -> str | None:
    """The command that was probably meant; newer typers suggest it themselves."""
    unknown = re.match(r"No such command '(.*)'", error.format_message())
    commands = getattr(getattr(error.ctx, "command", None), "commands", {})
    return next(iter(get_close_matches(unknown[1], commands, 1)), None) if unknown else None


def _accept_shell_name(arguments: list[str]) -> None:
    """`--show-completion zsh`: typer takes a name only if it may not detect the running shell."""
    for option, name in pairwise(arguments):
        if option in ("--show-completion", "--install-completion") and name in SHELLS:
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"


def _exit(message: str, status: int) -> NoReturn:
    """Print the error on one line: names of files and values may hold control characters and be very long."""
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in message)
    with suppress(OSError):  # stderr may be closed
        print(f"seqloom: {line if len(line) <= LONGEST else f'{line[:LONGEST]}…'}", file=sys.stderr)
    standard_streams.flush()
    sys.exit(status)
