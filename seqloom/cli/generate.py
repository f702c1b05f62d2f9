"""seqloom generate"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.cli import completion
from seqloom.cli.standard_streams import exact_printer
from seqloom.errors import SeqloomError


def generate(
    run: Annotated[str, typer.Argument(help="A run folder of a language model.")],
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "",
    length: Annotated[
        int | None,
        typer.Option(
            help="At most this many tokens (default: 200; for a model of lines, a quarter more than the longest line)."
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="How many texts; an empty line between them, none between lines.")
    ] = 1,
    label: Annotated[str | None, typer.Option(help="For a model trained with labels: the label to write for.")] = None,
    temperature: Annotated[
        float, typer.Option(help="Below 1: more likely tokens; above 1: more varied ones; 0: always the most likely.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample among the k most likely tokens; 0: all.")] = 0,
    top_p: Annotated[
        float,
        typer.Option(help="Sample among the most likely tokens that add up to this probability (nucleus sampling)."),
    ] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed writes the same texts.")] = 7,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)] = "auto",
) -> None:
    """Continue a prompt with a language model, printed as it is written."""
    from seqloom.decoding.generation import GenerationOptions
    from seqloom.decoding.search_options import Search
    from seqloom.runs.load import load
    from seqloom.tasks.shared.unseen_characters import UnseenTokens, unknown_tokens

    search = Search(sample=True, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    model = load(run, device=device)
    if model.config["task"] != "generate":
        raise SeqloomError(f"{run}: is a model of the task {model.config['task']}; seqloom predict answers with it")
    default_length = model.config["decoding"]["longest"]
    codec = model.texts.codec
    for note in UnseenTokens.of([unknown_tokens(codec, prompt) if codec.kind == "chars" else []]).notes():
        typer.echo(f"note: {note}", err=True)
    most = default_length if length is None else length
    options = GenerationOptions(length=most, stop=tuple(stop or ()), label=label)
    put = exact_printer(end="", flush=True)
    for number in range(count):
        if number and not model.texts.lines:
            put("\n")
        put(prompt)
        for text in model.generate(prompt, search, options, number):
            put(text)
        put("\n")
