"""seqloom predict"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.build import kind_of
from seqloom.cli import completion
from seqloom.cli.arguments import MOST_ROWS, UsageError, output_name, runs_and_files
from seqloom.cli.data import DELIMITER, ENCODING, HEADER
from seqloom.cli.standard_streams import exact_printer
from seqloom.decoding.search_options import AUTO, BEAM, GREEDY, SAMPLE
from seqloom.errors import SeqloomError, SettingError
from seqloom.options import without_none

if TYPE_CHECKING:
    from seqloom.decoding.batched import Answer

# Options under headings of their own in the help.
CONFIDENCE = partial(typer.Option, rich_help_panel="Confidence")
SAMPLING = partial(typer.Option, rich_help_panel="Sampling")


def predict(
    run: Annotated[str, typer.Argument(help="A run folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            show_default=False,
            help="More runs, to predict together by the mean of their probabilities; then a file of sources: one per "
            "line, or TSV, CSV, JSONL; - or nothing for standard input; or a dataset.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="The column of the sources, by name or by number from 1; for a language model with labels two "
            "columns: label,prompt."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="A source text, instead of a file; may be repeated.", show_default=False),
    ] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", callback=output_name, help="Write to this file; it appears when it is complete."
        ),
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy search.")] = 1,
    n_best: Annotated[
        int,
        typer.Option(help="Print the N best predictions of each source: number, score and text, separated by tabs."),
    ] = 1,
    alpha: Annotated[
        float, typer.Option(help="Length penalty: beam scores are divided by the length to this power.")
    ] = 1.0,
    decoding: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="How to decode, by name: greedy, sample, beam or one that was added, with settings of its own as "
            "NAME:key=value,key=value (default: by --beam, --sample).",
            autocompletion=completion.offer(AUTO, GREEDY, SAMPLE, BEAM),
        ),
    ] = None,
    scores: Annotated[
        bool,
        CONFIDENCE(
            "--scores",
            help="Write confidence TAB text; confidence: the geometric mean of the tokens' probabilities, 0 to 1.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per prediction: source, text, confidence, log_probability; for tag the words, "
            "their tags and the spans they mark, by characters and words.",
        ),
    ] = False,
    threshold: Annotated[
        float | None, CONFIDENCE(help="Leave out predictions below this confidence: an empty line in their place.")
    ] = None,
    below: Annotated[
        str | None, CONFIDENCE(help="With --threshold: print this text instead of the empty line.")
    ] = None,
    sample: Annotated[
        bool, SAMPLING("--sample", help="Sample from the model's distribution; results do not depend on --batch.")
    ] = False,
    temperature: Annotated[float, SAMPLING(help="Below 1: more likely tokens; above 1: more varied ones.")] = 1.0,
    top_k: Annotated[int, SAMPLING(help="Sample among the k most likely tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, SAMPLING(help="Sample among the most likely tokens that add up to this probability (nucleus sampling).")
    ] = 1.0,
    seed: Annotated[
        int,
        SAMPLING(
            help="Random seed of the sampling; the samples of a line depend on the seed and the line's number alone."
        ),
    ] = 7,
    batch: Annotated[int, typer.Option(max=MOST_ROWS, help="Sources per batch.")] = 64,
    stream: Annotated[bool, typer.Option("--stream", help="Predict each line as soon as it is read.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)] = "auto",
    engine: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="What runs the model: torch; or for translate on the CPU onnx, with the same search, or ct2, with its "
            "own. Exported into the run's folder on first use. An exported folder has its own engine.",
            autocompletion=completion.offer("torch", "onnx", "ct2"),
        ),
    ] = None,
) -> None:
    """Predict a target for every source. Empty lines stay empty, so that input and output lines correspond.

    Several runs of one task with the same vocabularies predict together: seqloom predict runs/a runs/b words.txt
    """
    from dataclasses import replace
    from itertools import tee

    from seqloom.data.files.columns import ReadOptions
    from seqloom.decoding.decoding_table import parse_decoding
    from seqloom.decoding.search_options import Search
    from seqloom.runs.load import load
    from seqloom.tasks.registry import dataset_files
    from seqloom.tasks.shared.unseen_characters import UnseenTokens

    runs, rest = runs_and_files(run, files or [])
    file, *extra = rest or ["-"]
    if extra:
        raise UsageError(f"got unexpected extra argument(s) ({' '.join(extra)})")
    format_options = without_none({"header": header, "delimiter": delimiter, "encoding": encoding})
    options = [f"--{'no-' if value is False else ''}{name}" for name, value in format_options.items()]
    of_files = [*rest, *([] if columns is None else ["--columns"]), *options]
    if text and of_files:
        raise UsageError(f"give a file or --text, not both: {of_files[0]}")

    chosen = parse_decoding(decoding or AUTO)
    sample = sample or kind_of(chosen) == SAMPLE
    own = kind_of(chosen) not in (AUTO, GREEDY, BEAM)  # which may read all settings
    _check(
        sample or own or (temperature, top_k, top_p) == (1.0, 0, 1.0),
        "temperature, top-k and top-p are for sampling: add --sample",
    )
    _check(threshold is None or 0 <= threshold <= 1, f"--threshold is a confidence of 0 to 1, here {threshold}")
    _check(below is None or threshold is not None, "--below is the text for predictions below a --threshold: set one")
    _check(not (scores and as_json), "--json holds the scores already; leave --scores out")
    search = Search(
        beam=n_best if beam == 1 and not sample and not own else beam,
        n_best=n_best,
        alpha=alpha,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        decoding=chosen,
    )
    model = load(*runs, device=device, engine=engine)
    stream = stream or (file == "-" and not text and output is None and sys.stdin.isatty())
    rows, ahead = (1, 1) if stream else (batch, 16)
    if text:
        sources = map(_checked_text, text)
    else:
        [path] = dataset_files([file], "test", model.config["task"])
        is_table = path == file and file.removesuffix(".gz").endswith((".tsv", ".csv", ".jsonl"))
        # Plain lines have no columns, and a dataset has its own.
        reading = replace(model.reading(columns) if is_table else ReadOptions(columns=columns), **format_options)
        sources = model.sources(path, reading, on_note=lambda note: typer.echo(f"note: {note}", err=True))
    inputs, sources = tee(sources)
    count, below_threshold, unseen = 0, 0, UnseenTokens(model.unseen_unit)
    with _writer(output, stream) as write:
        predictions = model.answers(model.warn_of_long(inputs), search, rows, ahead)
        for number, (source, answers) in enumerate(zip(sources, predictions, strict=True)):
            unseen.add(unknown := model.unknown(source))
            for rank, answer in enumerate(answers):
                doubtful = threshold is not None and answer.confidence < threshold
                count, below_threshold = count + 1, below_threshold + doubtful
                answer_text = below or "" if doubtful else answer.text
                place = (number + 1, rank + 1) if n_best > 1 else ()
                if as_json:
                    more = {} if doubtful else model.answer_json(source, answer)
                    write(_json(source, answer_text, answer, place, more | ({"unknown": unknown} if unknown else {})))
                else:
                    write(_line(answer_text, answer, place, scores))
    for note in unseen.notes():
        typer.echo(f"note: {note}", err=True)
    if threshold is not None:
        typer.echo(f"{below_threshold:,} of {count:,} predictions are below a confidence of {threshold:g}", err=True)


def _check(valid: bool, message: str) -> None:
    if not valid:
        raise SettingError(message)


def _line(text: str, answer: Answer, place: tuple[int, ...], scores: bool) -> str:
    columns = [str(number) for number in place[:1]]
    if scores or place:
        columns.append(f"{answer.confidence if scores else answer.score:.4f}")
    return "\t".join([*columns, text.replace("\n", " ")])


def _json(source: str | Sequence[str], text: str, answer: Answer, place: tuple[int, ...], more: dict[str, Any]) -> str:
    facts = {"source": source, "text": text, "confidence": answer.confidence, "log_probability": answer.log_probability}
    return json.dumps(facts | dict(zip(("number", "rank"), place, strict=False)) | more, ensure_ascii=False)


def _checked_text(text: str) -> str:
    """The text of --text; the shell may pass bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SeqloomError(f"--text {text!r}: not UTF-8") from None
    return text


@contextmanager
def _writer(output: str | None, stream: bool) -> Iterator[Callable[[str], object]]:
    """A function that writes one line, to standard output or to a file that appears when it is complete."""
    if output is None:
        yield exact_printer(flush=stream)
        return
    from pathlib import Path

    from seqloom.files import writing_output

    with writing_output(Path(output)) as file:
        yield lambda line: file.write(f"{line}\n".encode())
