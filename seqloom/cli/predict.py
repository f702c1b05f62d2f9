"""seqloom predict"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import complete
from seqloom.cli.data import DELIMITER, ENCODING, HEADER
from seqloom.cli.streams import exact
from seqloom.cli.usage import MOST_ROWS, UsageError, members, named
from seqloom.errors import SeqloomError, SettingError

if TYPE_CHECKING:
    from seqloom.decoding.batched import Answer

# Options under headings of their own in the help.
DOUBT = partial(typer.Option, rich_help_panel="How sure it is")
SAMPLING = partial(typer.Option, rich_help_panel="Drawing answers instead of the likeliest")


def predict(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            show_default=False,
            help="More runs, to answer together by the mean of their probabilities; then a file of sources, one a "
            "line, or TSV, CSV, JSONL; or - for standard input, as without any; or a dataset.",
            autocompletion=complete.datasets,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="The column of the sources, by name in the first line or by number from 1; of a language model with "
            "labels two: label,prompt."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="A source itself, instead of a file; may be given again.", show_default=False),
    ] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", callback=named, help="Write to this file, which appears when it is whole."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1 is greedy.")] = 1,
    n_best: Annotated[int, typer.Option(help="So many answers a line: number, score and text, with tabs.")] = 1,
    alpha: Annotated[float, typer.Option(help="Beam scores are divided by length to this power.")] = 1.0,
    scores: Annotated[
        bool,
        DOUBT(
            "--scores",
            help="Write confidence TAB text: the geometric mean of the probabilities of the answer's tokens, 0 to 1.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="A JSON object an answer: source, text, confidence, log_probability; of tag the words, their tags and "
            "the spans these mark, by characters and words.",
        ),
    ] = False,
    threshold: Annotated[
        float | None, DOUBT(help="Answers of a lower confidence are left out: an empty line in their place.")
    ] = None,
    below: Annotated[str | None, DOUBT(help="With --threshold: this text in place of the empty line.")] = None,
    sample: Annotated[
        bool, SAMPLING("--sample", help="Draw from the model's distribution; no answer depends on --batch.")
    ] = False,
    temperature: Annotated[float, SAMPLING(help="Below 1 likelier, above 1 more varied.")] = 1.0,
    top_k: Annotated[int, SAMPLING(help="Sample among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, SAMPLING(help="Sample among the likeliest that hold this mass.")] = 1.0,
    seed: Annotated[
        int, SAMPLING(help="Of the sampling: a line draws by the seed and its number alone, whatever its batch.")
    ] = 7,
    batch: Annotated[int, typer.Option(max=MOST_ROWS, help="Sentences a batch.")] = 64,
    stream: Annotated[bool, typer.Option("--stream", help="Answer each line as it comes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=complete.devices)] = "auto",
    engine: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="What computes: torch; or for translate, on the CPU, onnx, with the same search, or ct2, with one of "
            "its own. Made on first use in the run's folder. An exported folder has its own.",
            autocompletion=complete.offer("torch", "onnx", "ct2"),
        ),
    ] = None,
) -> None:
    """Write a target for every source. Empty lines stay empty, so that lines stay side by side.

    Several runs of one task with the same vocabularies answer as one: seqloom predict runs/a runs/b words.txt
    """
    from dataclasses import replace
    from itertools import tee

    from seqloom.data.datasets import catalog
    from seqloom.data.files.columns import Reading
    from seqloom.data.formats.pairs import read_sources
    from seqloom.decoding.search import Search
    from seqloom.runs.load import load
    from seqloom.tasks.shared.unseen_characters import Strange

    runs, rest = members(run, files or [])
    file, *over = rest or ["-"]
    if over:
        raise UsageError(f"got unexpected extra argument(s) ({' '.join(over)})")
    written = {"header": header, "delimiter": delimiter, "encoding": encoding}
    written = {name: value for name, value in written.items() if value is not None}
    options = [f"--{'no-' if value is False else ''}{name}" for name, value in written.items()]
    of_files = [*rest, *([] if columns is None else ["--columns"]), *options]
    if text and of_files:
        raise UsageError(f"give a file or --text, not both: {of_files[0]}")

    _check(
        sample or (temperature, top_k, top_p) == (1.0, 0, 1.0),
        "temperature, top-k and top-p shape what is sampled: add --sample",
    )
    _check(threshold is None or 0 <= threshold <= 1, f"--threshold is a confidence of 0 to 1, here {threshold}")
    _check(below is None or threshold is not None, "--below says what to write under a --threshold; set one")
    _check(not (scores and as_json), "--json holds the scores already; leave --scores out")
    search = Search(
        beam=n_best if beam == 1 and not sample else beam,
        n_best=n_best,
        alpha=alpha,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    model = load(*runs, device=device, engine=engine)
    stream = stream or (file == "-" and not text and output is None and sys.stdin.isatty())
    rows, ahead = (1, 1) if stream else (batch, 16)
    if text:
        every = map(_typed, text)
    else:
        [found] = catalog.resolve([file], "test", model.config["task"])
        table = found == file and file.removesuffix(".gz").endswith((".tsv", ".csv", ".jsonl"))
        # Plain lines have no columns, and a dataset has its own.
        reading = replace(model.reading(columns) if table else Reading(columns=columns), **written)
        sources = getattr(model, "sources", read_sources)
        every = sources(found, reading, told=lambda note: typer.echo(f"note: {note}", err=True))
    asked, shown = tee(every)
    count, doubted, strange = 0, 0, Strange(model.strange)
    with _writer(output, stream) as write:
        each = model.answers(model.warned(asked), search, rows, ahead)
        for number, (source, answers) in enumerate(zip(shown, each, strict=True)):
            strange.see(new := model.unknown(source))
            for rank, answer in enumerate(answers):
                doubt = threshold is not None and answer.confidence < threshold
                count, doubted = count + 1, doubted + doubt
                said = below or "" if doubt else answer.text
                place = (number + 1, rank + 1) if n_best > 1 else ()
                more = ({} if doubt else model.told(source, answer)) | ({"unknown": new} if new else {})
                write(_json(source, said, answer, place, more) if as_json else _line(said, answer, place, scores))
    for note in strange.notes():
        typer.echo(f"note: {note}", err=True)
    if threshold is not None:
        typer.echo(f"{doubted:,} of {count:,} answers are below a confidence of {threshold:g}", err=True)


def _check(right: bool, message: str) -> None:
    if not right:
        raise SettingError(message)


def _line(text: str, answer: Answer, place: tuple[int, ...], scores: bool) -> str:
    columns = [str(number) for number in place[:1]]
    if scores or place:
        columns.append(f"{answer.confidence if scores else answer.score:.4f}")
    return "\t".join([*columns, text.replace("\n", " ")])


def _json(source: str | Sequence[str], text: str, answer: Answer, place: tuple[int, ...], more: dict[str, Any]) -> str:
    facts = {"source": source, "text": text, "confidence": answer.confidence, "log_probability": answer.log_probability}
    return json.dumps(facts | dict(zip(("number", "rank"), place, strict=False)) | more, ensure_ascii=False)


def _typed(text: str) -> str:
    """What was typed at a shell, which may be in another encoding than it says."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SeqloomError(f"--text {text!r}: not UTF-8") from None
    return text


@contextmanager
def _writer(output: str | None, stream: bool) -> Iterator[Callable[[str], object]]:
    """A function that writes one line, to standard output or to a file that is whole or not there."""
    if output is None:
        yield exact(flush=stream)
        return
    from pathlib import Path

    from seqloom.files import writing_output

    with writing_output(Path(output)) as file:
        yield lambda line: file.write(f"{line}\n".encode())
