"""seqloom embed"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import complete
from seqloom.cli.data import DELIMITER, ENCODING, HEADER
from seqloom.cli.streams import exact
from seqloom.cli.usage import MOST_ROWS, UsageError, named

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".npy", ".tsv", ".jsonl")


def embed(
    run: Annotated[str, typer.Argument(help="A run folder whose model has an encoder of texts.")],
    file: Annotated[str, typer.Argument(help="Texts, one a line, or TSV, CSV, JSONL; - reads standard input.")] = "-",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", callback=named, help="Write the vectors here, or what is near: .npy, .tsv or .jsonl."
        ),
    ] = None,
    nearest: Annotated[int | None, typer.Option(help="For each line so many that are nearest, by cosine.")] = None,
    among: Annotated[
        str | None, typer.Option(help="With --nearest: lines of this file, instead of the others of the same.")
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="FILE has two texts a line: for how many is the second among the nearest?"),
    ] = False,
    way: Annotated[
        str,
        typer.Option(
            help="mean: of the states of all tokens; summary: the encoder's own.",
            autocompletion=complete.offer("mean", "summary"),
        ),
    ] = "mean",
    layer: Annotated[int | None, typer.Option(help="States of this layer, from 1 (default: the last).")] = None,
    columns: Annotated[
        str | None, typer.Option(help="The column of the texts (with --pairs: both), by name or by number from 1.")
    ] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    batch: Annotated[int, typer.Option(max=MOST_ROWS, help="Texts a batch.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=complete.devices)] = "auto",
) -> None:
    """One vector for every text: write them, find the nearest texts, or measure how often pairs find each other.

    Examples: seqloom embed RUN texts.txt -o vectors.npy; seqloom embed RUN texts.txt --nearest 5 --among others.txt;
    seqloom embed RUN pairs.tsv --pairs
    """
    if pairs and (nearest is not None or output is not None):
        raise UsageError("--pairs measures and writes nothing: leave --nearest and --output out")
    if among is not None and nearest is None:
        raise UsageError("--among is where --nearest looks: say how many, as in --nearest 5")
    if nearest is None and output is None and not pairs:
        raise UsageError("say what is wanted: --output vectors.npy, --nearest 5 or --pairs")
    if output is not None and Path(output).suffix not in ENDINGS[1 if nearest else 0 :]:
        raise UsageError(f"--output {output}: its name ends in {' or '.join(ENDINGS[1 if nearest else 0 :])}")
    if batch < 1:
        raise UsageError(f"--batch is at least 1, here {batch}")
    from seqloom.data.files.columns import Reading
    from seqloom.data.formats.pairs import read_sources
    from seqloom.data.tokenizers.vocabulary import Codec
    from seqloom.documents import read_json
    from seqloom.runs.load import load_one
    from seqloom.tasks.shared.embeddings import Embedder

    model = load_one(run, device)
    embedder = Embedder.of(model, Codec.from_json(read_json(model.folder / "source.json")), way, layer)
    reading = Reading(columns=columns, header=header, delimiter=delimiter, encoding=encoding)
    if pairs:
        _measure(embedder, file, reading, batch)
        return
    texts = list(read_sources(file, reading, told=_note))
    if not texts:
        raise UsageError(f"{file}: holds no lines")
    vectors = _matrix(embedder, texts, batch)
    if nearest is None:
        _write(Path(str(output)), texts, vectors)
        return
    from seqloom.tasks.shared.embeddings import nearest as find

    others = texts if among is None else list(read_sources(among, reading, told=_note))
    near = find(vectors, vectors if among is None else _matrix(embedder, others, batch), nearest, same=among is None)
    _put(output, _near(texts, others, near, json_lines=str(output).endswith(".jsonl")))


def _note(note: str) -> None:
    typer.echo(f"note: {note}", err=True)


def _matrix(embedder: Any, texts: list[str], batch: int) -> np.ndarray:
    import numpy as np

    return np.stack(list(embedder(texts, batch)))


def _measure(embedder: Any, file: str, reading: Any, batch: int) -> None:
    from seqloom.data.formats.bad_lines import examples
    from seqloom.plural import counted
    from seqloom.tasks.shared.embeddings import recall

    found, notes = examples([file], reading)
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


def _near(texts: list[str], others: list[str], near: Any, json_lines: bool) -> Iterator[str]:
    """A line for each that is near: number of the text, cosine, number and text of the other; numbers from 1."""
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
        put = exact()
        for line in lines:
            put(line)
        return
    from seqloom.files import write_output

    write_output(Path(output), "".join(f"{line}\n" for line in lines))
