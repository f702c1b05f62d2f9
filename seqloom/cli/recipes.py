"""seqloom recipes"""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from seqloom.cli import completion


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Print this recipe in full.", autocompletion=completion.recipes)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the recipes: trainings with a known result, what data and paper they follow, and what they reached here.

    Example: seqloom train --recipe pinyin --output runs/pinyin
    """
    import yaml

    from seqloom.runs.recipes import recipe as shelf

    if name is not None:
        one = shelf.recipe_values(shelf.load(name))
        typer.echo(
            json.dumps(one, ensure_ascii=False)
            if as_json
            else yaml.safe_dump(one, sort_keys=False, allow_unicode=True, width=100).rstrip()
        )
        return
    every = [shelf.load(one) for one in shelf.names()]
    if as_json:
        typer.echo(json.dumps([shelf.recipe_values(one) for one in every], ensure_ascii=False))
        return
    for one in every:
        scores = ", ".join(f"{metric} {value:g}" for metric, value in one.scores().items())
        where = ", ".join(str(one.reached[key]) for key in ("time", "hardware") if key in one.reached)
        typer.echo(f"{one.name}: {one.about}")
        times = Counter([one.train] if isinstance(one.train, str) else one.train)
        data = ", ".join(file if count == 1 else f"{count} × {file}" for file, count in times.items())
        models = ", ".join(dict.fromkeys(part.model for part in one.parts()))
        models = f"{len(one.members)} models together, {models}," if one.members else models
        typer.echo(f"  {models} on {data}; {f'reached {scores} ({where})' if scores else 'no score on record yet'}")
