"""seqloom settings"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import completion
from seqloom.tasks.presets import SIZES, about, default_model
from seqloom.tasks.registry import TASKS

if TYPE_CHECKING:
    from seqloom.runs.settings.setting_table import Setting


def settings(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS)}.", autocompletion=completion.offer(*TASKS))],
    model: Annotated[
        str | None, typer.Argument(help="A preset (default: the task's own).", autocompletion=completion.models)
    ] = None,
    find: Annotated[
        str | None, typer.Option(help="Only settings with this word in their name, choices or description.")
    ] = None,
    size: Annotated[str, typer.Option(help=f"{', '.join(SIZES)}.", autocompletion=completion.offer(*SIZES))] = "small",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List every setting that train --set takes, with its default, its choices and what it does.

    Examples: seqloom settings translate transformer; seqloom settings tag --find dropout
    """
    from seqloom.errors import known, setting_errors
    from seqloom.runs.settings.setting_table import settings as every

    with setting_errors():
        known(task, TASKS, "task")
        if model is not None:
            known(model, about(task), f"model of {task}")
        found = every(task, model, size)
    if find is not None:
        word = find.casefold()
        found = [one for one in found if word in " ".join((one.key, one.about, *one.choices)).casefold()]
    if as_json:
        head = {"task": task, "model": model or default_model(task), "size": size}
        typer.echo(json.dumps({**head, "settings": [one._asdict() for one in found]}, ensure_ascii=False))
        return
    typer.echo(f"{task} {model or default_model(task)} {size}: what --set takes, as in --set {_example(found)}")
    if model is None:
        typer.echo(f"models: {', '.join(about(task))}")
    for line in setting_lines(found):
        typer.echo(line)
    if not found:
        typer.echo(f"no setting has {find!r} in it")


def setting_lines(found: list[Setting]) -> list[str]:
    """A line for each setting; in a narrow terminal its description continues below."""
    from shutil import get_terminal_size
    from textwrap import wrap

    names = max((len(one.key) for one in found), default=0)
    defaults = max((len(as_set_value(one.default)) for one in found), default=0)
    room = get_terminal_size().columns - names - defaults - 4 if sys.stdout.isatty() else 10_000
    lines = []
    for one in found:
        choices = f" ({', '.join(choice or repr('') for choice in one.choices)})" if one.choices else ""
        first, *rest = wrap(one.about + choices, max(room, 30)) or [""]
        lines.append(f"{one.key:<{names}}  {as_set_value(one.default):<{defaults}}  {first}".rstrip())
        lines += [f"{'':<{names + defaults + 4}}{more}" for more in rest]
    return lines


def as_set_value(value: Any) -> str:
    """A value in the form that --set takes."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _example(found: list[Setting]) -> str:
    one = next((one for one in found if one.key.count(".") and one.default is not None), None)
    return "training.clip=1.0" if one is None else f"{one.key}={as_set_value(one.default)}"
