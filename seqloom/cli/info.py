"""seqloom info"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def info(
    run: Annotated[str | None, typer.Argument(help="A run folder.")] = None,
    length: Annotated[
        int, typer.Option(min=1, max=5000, help="Number of source and target tokens for which operations are counted.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print versions and hardware; for a run, the parameters, operations and memory of every layer."""
    from seqloom.runs.folder.environment import environment

    if run is None:
        facts = environment()
        if as_json:
            typer.echo(json.dumps(facts, ensure_ascii=False))
            return
        for name, value in (facts | facts.pop("packages")).items():
            typer.echo(f"{name:<12} {', '.join(value) if isinstance(value, list) else value}")
        return
    from seqloom.inspection.cost import cost
    from seqloom.runs.config import check_folder
    from seqloom.runs.load import ENGINE, load

    check_folder(Path(run))
    if (Path(run) / ENGINE).is_file():
        _print_exported(Path(run), as_json)
        return
    model = load(run, device="cpu")
    layers = cost(model.model, lambda: model.dummy_forward(length))
    if as_json:
        typer.echo(json.dumps({"config": model.config, "layers": [layer._asdict() for layer in layers]}))
        return
    files = model.config.get("inputs", {}).get("train", [])
    typer.echo(f"{run}: {model.config['task']}, trained on {', '.join(files)}")
    sides = f"{length} source and {length} target" if model.config["task"] == "translate" else f"{length}"
    typer.echo(f"one example of {sides} tokens, forward pass")
    typer.echo(f"{'layer':<34} {'parameters':>12} {'operations':>14} {'memory':>10}")
    for layer in layers:
        name = layer.name or "total"
        typer.echo(f"{name:<34} {layer.parameters:>12,} {layer.operations:>14,} {layer.memory / 1024:>8,.0f} K")


def _print_exported(folder: Path, as_json: bool) -> None:
    """Of an exported folder, which has no layers to count: its engine, its libraries and its difference from torch."""
    from seqloom.runs.interop.engines import engine_facts

    facts = engine_facts(folder)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    typer.echo(f"{folder}: exported for the engine {facts['engine']}{' in int8' if facts.get('int8') else ''}")
    typer.echo(f"written by seqloom {facts['seqloom']} with {libraries}")
    typer.echo(f"its logits differ from torch's by at most {facts['difference']:.1e} of the largest")
