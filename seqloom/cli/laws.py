"""seqloom laws"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import completion
from seqloom.cli.arguments import UsageError
from seqloom.language import _

if TYPE_CHECKING:
    from seqloom.laws.case import Law, Part
    from seqloom.laws.checking import Result

KINDS = ("cell", "score", "mixer", "norm")
OUTCOMES = {"holds": "holds", "broken": "broken", "skipped": "does not apply"}


def laws(
    file: Annotated[
        str, typer.Argument(help="A Python file with parts of your own, which is run; or a part of Seqloom, as lstm.")
    ],
    name: Annotated[str | None, typer.Option(help="Only this class or function of the file.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(KINDS)} (default: recognized by its methods).", autocompletion=completion.offer(*KINDS)
        ),
    ] = None,
    law: Annotated[str | None, typer.Option(help="Only these laws, separated by commas.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights and inputs that are tried.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a cell, score, mixer or norm of your own against the laws of its kind.

    Of a law that is broken, the smallest failing case is shown. The exit status is then 1.

    Examples: seqloom laws my_cell.py; seqloom laws --kind cell lstm
    """
    from contextlib import redirect_stdout

    from seqloom.errors import known, setting_errors
    from seqloom.laws.checking import check
    from seqloom.laws.kinds import KINDS as TABLE
    from seqloom.laws.user_file import parts_of

    with setting_errors():
        if kind is not None:
            known(kind, KINDS, "kind")
        with redirect_stdout(sys.stderr):  # what the file prints is no result
            parts = parts_of(file, kind, name)
        chosen = None if law is None else [one.strip() for one in law.split(",")]
        offered = {one.name for part in parts for one in TABLE[part.kind].laws}
        for one in chosen or ():
            known(one, offered, "law")
    if name is not None and not parts[0].file:
        raise UsageError("--name is of a class in a file")
    results, broken = [], False
    for part in parts:
        picked = tuple(one for one in TABLE[part.kind].laws if chosen is None or one.name in chosen)
        with redirect_stdout(sys.stderr):
            found = list(check(part, TABLE[part.kind], picked, seed))
        broken |= any(one.outcome == "broken" for one in found)
        results.append({"name": part.name, "kind": part.kind, "laws": [_record(one) for one in found]})
        if not as_json:
            print_results(part, found, seed)
    if as_json:
        typer.echo(json.dumps({"seed": seed, "holds": not broken, "parts": results}, ensure_ascii=False))
    if broken:
        raise typer.Exit(1)


def print_results(part: Part, found: list[Result], seed: int) -> None:
    """A line for each law, and below a broken one what was found."""
    from rich.cells import cell_len as width

    typer.echo(_("{name} ({kind}), seed {seed}", name=part.name, kind=part.kind, seed=seed))
    words = {outcome: _(text) for outcome, text in OUTCOMES.items()}
    first = max(map(width, words.values()))
    second = max((len(one.law.name) for one in found), default=0)
    for one in found:
        word = words[one.outcome]
        note = f" ({one.message})" if one.outcome == "skipped" else ""
        typer.echo(f"  {word}{' ' * (first - width(word))}  {one.law.name:<{second}}  {_(one.law.demand)}{note}")
        if one.outcome == "broken":
            for line in broken_lines(part, one):
                typer.echo(f"  {'':<{first}}  {'':<{second}}  → {line}")
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in words}
    typer.echo(
        _("{holds} hold, {broken} broken, {skipped} do not apply", **counts)  # pyright: ignore[reportArgumentType]
    )


def broken_lines(part: Part, one: Result) -> list[str]:
    sizes = "" if one.case is None else one.case.shown(one.law.sizes)
    where = "" if one.line is None else f" ({part.file.rpartition('/')[2]}:{one.line})"
    return [_("{sizes}: {message}", sizes=sizes, message=one.message) + where if sizes else one.message + where] + (
        [one.numbers] if one.numbers else []
    )


def _record(one: Result) -> dict[str, Any]:
    """A result as JSON has it."""
    law: Law = one.law
    record: dict[str, Any] = {"law": law.name, "demand": _(law.demand), "outcome": one.outcome}
    if one.message:
        record["message"] = one.message
    if one.case is not None:
        record["case"] = {name: getattr(one.case, name) for name in (*law.sizes, "seed")}
    if one.line is not None:
        record["line"] = one.line
    return record
