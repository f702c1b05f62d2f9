"""seqloom generate"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.cli import complete
from seqloom.cli.streams import exact
from seqloom.errors import SeqloomError


def generate(
    run: Annotated[str, typer.Argument(help="A run folder of a language model.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "",
    length: Annotated[
        int | None, typer.Option(help="Tokens at most (default: 200; of a model of lines, a quarter over the longest).")
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="So many texts, an empty line between; lines below each other.")
    ] = 1,
    label: Annotated[str | None, typer.Option(help="Of a model that writes for a label: which one.")] = None,
    temperature: Annotated[float, typer.Option(help="Below 1 likelier, above 1 more varied; 0: the likeliest.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that hold this mass.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")] = None,
    seed: Annotated[
        int, typer.Option(help="The same seed writes the same; the first of --count 3 is that of --count 1.")
    ] = 7,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=complete.devices)] = "auto",
) -> None:
    """Write on from a prompt, and print it as it is written."""
    from seqloom.decoding.generation import Course
    from seqloom.decoding.search import Search
    from seqloom.runs.load import load
    from seqloom.tasks.shared.unseen_characters import Strange, unknown_pieces

    search = Search(sample=True, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    model = load(run, device=device)
    if model.config["task"] != "generate":
        raise SeqloomError(f"{run}: is a model of the task {model.config['task']}; seqloom predict answers with it")
    usual = model.config["decoding"]["longest"]
    codec = model.texts.codec
    for note in Strange.of([unknown_pieces(codec, prompt) if codec.kind == "chars" else []]).notes():
        typer.echo(f"note: {note}", err=True)
    course = Course(length=usual if length is None else length, stop=tuple(stop or ()), label=label)
    put = exact(end="", flush=True)
    for number in range(count):
        if number and not model.texts.lines:
            put("\n")
        put(prompt)
        for text in model.generate(prompt, search, course, number):
            put(text)
        put("\n")
