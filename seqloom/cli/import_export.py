"""seqloom import, seqloom export"""

from __future__ import annotations

from typing import Annotated

import typer

from seqloom.cli.arguments import output_name
from seqloom.cli.completion import offer
from seqloom.errors import SettingError, known, setting_errors

ENGINES = ("onnx", "ct2")


def import_(
    kind: Annotated[
        str,
        typer.Argument(help="hf: a Hugging Face model: Marian, Pegasus, BART or mBART.", autocompletion=offer("hf")),
    ],
    path: Annotated[str, typer.Argument(help="Its local folder, with config.json and model.safetensors.")],
    output: Annotated[str, typer.Option("--output", "-o", callback=output_name, help="Folder for the run.")],
    ids: Annotated[
        bool, typer.Option("--ids", help="Without its tokenizer: texts are token ids, separated by spaces.")
    ] = False,
) -> None:
    """Import a checkpoint of another library as a run: predict, evaluate and look inside as with your own."""
    with setting_errors():
        known(kind, ("hf",), "kind of checkpoint")
    from seqloom.runs.interop.huggingface_import import import_hf

    done = import_hf(path, output, ids=ids)
    typer.echo(f"{done.folder}: {done.model_type}, {done.parameters:,} parameters")
    for note in done.notes:
        typer.echo(f"  note: {note}")


def export(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="hf: for transformers; tokenizers: only the tokenizer.json files; onnx: for onnxruntime, encoder and "
            "decoding step; ct2: for CTranslate2, Transformers only.",
            autocompletion=offer("hf", "tokenizers", *ENGINES),
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", callback=output_name, help="Folder to write; must be new.")],
    int8: Annotated[
        bool,
        typer.Option(
            "--int8", help="For onnx and ct2: 8-bit weights, smaller and often faster, with slightly different outputs."
        ),
    ] = False,
) -> None:
    """Export a run to a format that other libraries read, with the same outputs."""
    with setting_errors():
        known(to, ("hf", "tokenizers", *ENGINES), "form")
    if int8 and to not in ENGINES:
        raise SettingError(f"--int8 goes with --to {' or '.join(ENGINES)}, not with {to}")
    if to in ENGINES:
        from seqloom.runs.interop.engines import export_engine

        made = export_engine(run, output, to, int8)
        typer.echo(f"{output}: differs from torch by at most {made.difference:.1e}; seqloom predict {output} FILE")
        return
    from seqloom.runs.interop.huggingface_export import export_hf, export_tokenizers

    if to == "hf":
        typer.echo(f"{output}: {export_hf(run, output)}, for transformers; the target's tokenizer is in target/")
    else:
        typer.echo(f"{export_tokenizers(run, output)}: source/tokenizer.json and target/tokenizer.json")
