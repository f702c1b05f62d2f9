"""seqloom embed"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import completion
from seqloom.cli.arguments import MOST_ROWS, UsageError, output_name
from seqloom.cli.data import DELIMITER, ENCODING, HEADER
from seqloom.cli.standard_streams import exact_printer

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".npy", ".tsv", ".jsonl")


def embed(
    run: Annotated[str, typer.Argument(help="A run folder whose model encodes texts.")],
    file: Annotated[str, typer.Argument(help="Texts, one per line, or TSV, CSV, JSONL; - for standard input.")] = "-",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            callback=output_name,
            help="Write the vectors, or the nearest texts, to this file: .npy, .tsv or .jsonl.",
        ),
    ] = None,
    nearest: Annotated[
        int | None, typer.Option(help="For each text, find the N nearest ones by cosine similarity.")
    ] = None,
    among: Annotated[
        str | None, typer.Option(help="With --nearest: search among the lines of this file, instead of the same file.")
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="FILE has two texts per line: measure how often the second is among the nearest of the first.",
        ),
    ] = False,
    way: Annotated[
        str,
        typer.Option(
            help="mean: the mean of the states of all tokens; summary: the encoder's own summary.",
            autocompletion=completion.offer("mean", "summary"),
        ),
    ] = "mean",
    layer: Annotated[
        int | None, typer.Option(help="Use the states of this layer, counted from 1 (default: the last).")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="The column of the texts (with --pairs: both columns), by name or by number from 1."),
    ] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    batch: Annotated[int, typer.Option(max=MOST_ROWS, help="Texts per batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)] = "auto",
) -> None:
    """Turn texts into vectors: write them, find the nearest texts, or measure how often pairs find each other.

    Examples: seqloom embed RUN texts.txt -o vectors.npy; seqloom embed RUN texts.txt --nearest 5 --among others.txt;
    seqloom embed RUN pairs.tsv --pairs
    """
    if pairs and (nearest is not None or output is not None):
        raise UsageError("--pairs only measures: leave --nearest and --output out")
    if among is not None and nearest is None:
        raise UsageError("--among goes with --nearest: add how many, as in --nearest 5")
    if nearest is None and output is None and not pairs:
        raise UsageError("name what to do: --output vectors.npy, --nearest 5 or --pairs")
    if output is not None and Path(output).suffix not in ENDINGS[1 if nearest else 0 :]:
        raise UsageError(f"--output {output}: its name ends in {' or '.join(ENDINGS[1 if nearest else 0 :])}")
    if batch < 1:
        raise UsageError(f"--batch is at least 1, here {batch}")
    from seqloom.data.files.columns import ReadOptions
    from seqloom.data.formats.pairs import read_sources
    from seqloom.data.tokenizers.vocabulary import Codec
    from seqloom.documents import read_json
    from seqloom.runs.load import load_one
    from seqloom.tasks.shared.embeddings import Embedder

    model = load_one(run, device)
    embedder = Embedder.of(model, Codec.from_json(read_json(model.folder / "source.json")), way, layer)
    reading = ReadOptions(columns=columns, header=header, delimiter=delimiter, encoding=encoding)
    if pairs:
        _measure(embedder, file, reading, batch)
        return
    texts = list(read_sources(file, reading, on_note=_note))
    if not texts:
        raise UsageError(f"{file}: holds no lines")
    vectors = _matrix(embedder, texts, batch)
    if nearest is None:
        _write(Path(str(output)), texts, vectors)
        return
    from seqloom.tasks.shared.embeddings import nearest as find

    others = texts if among is None else list(read_sources(among, reading, on_note=_note))
    near = find(vectors, vectors if among is None else _matrix(embedder, others, batch), nearest, same=among is None)
    _put(output, _neighbor_lines(texts, others, near, json_lines=str(output).endswith(".jsonl")))


def _note(note: str) -> None:
    typer.echo(f"note: {note}", err=True)


def _matrix(embedder: Any, texts: list[str], batch: int) -> np.ndarray:
    import numpy as np

    return np.stack(list(embedder(texts, batch)))


def _measure(embedder: Any, file: str, reading: Any, batch: int) -> None:
    from seqloom.data.formats.bad_lines import read_examples
    from seqloom.plural import counted
    from seqloom.tasks.shared.embeddings import recall

    found, notes = read_examples([file], reading)
    for note in notes:
        _note(note)
    if not found:
        raise UsageError(f"{file}: holds no pairs")
    left = _matrix(embedder, [example.source for example in found], batch)
    scores = recall(left, _matrix(embedder, [example.targets[0] for example in found], batch))
    typer.echo(counted(len(found), "pairs"))
    for name, value in scores.items():
        typer.echo(f"  {name:<12} {value:8.2f}")


def _write(path: Path, texts: list[str], vectors: np.ndarray) -> None:
    """As an array, as numbers with tabs between, or as JSON lines with the text."""
    from seqloom.files import writing_output

    with writing_output(path) as file:
        if path.suffix == ".npy":
            import numpy as np

            np.save(file, vectors)
            return
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            numbers = [float(f"{number:.6g}") for number in vector]
            row = {"text": text, "vector": numbers}
            line = json.dumps(row, ensure_ascii=False) if path.suffix == ".jsonl" else "\t".join(map(str, numbers))
            file.write(f"{line}\n".encode())


def _neighbor_lines(texts: list[str], others: list[str], near: Any, json_lines: bool) -> Iterator[str]:
    """A line for each neighbor: number of the text, cosine, number and text of the neighbor; numbers from 1."""
    for number, (rows, cosines) in enumerate(zip(near.rows.tolist(), near.cosines.tolist(), strict=True)):
        if json_lines:
            found = [
                {"line": row + 1, "cosine": round(cosine, 6), "text": others[row]}
                for row, cosine in zip(rows, cosines, strict=True)
            ]
            yield json.dumps({"line": number + 1, "text": texts[number], "nearest": found}, ensure_ascii=False)
            continue
        for row, cosine in zip(rows, cosines, strict=True):
            yield f"{number + 1}\t{cosine:.4f}\t{row + 1}\t{' '.join(others[row].split())}"


def _put(output: str | None, lines: Iterable[str]) -> None:
    if output is None:
        put = exact_printer()
        for line in lines:
            put(line)
        return
    from seqloom.files import write_output

    write_output(Path(output), "".join(f"{line}\n" for line in lines))
