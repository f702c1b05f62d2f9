"""Scores a trained model on test data, and formats the scores for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.data.files.lines import STDIN
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, missing
from seqloom.files import write_json
from seqloom.plural import counted
from seqloom.runs.evaluate.report_files import evaluation_file
from seqloom.tasks.registry import dataset_files
from seqloom.tasks.shared.evaluation import examples_of

NO_LIMIT = 10**9  # test data are scored completely


def check(names: Sequence[str], task: str) -> None:
    """Refuse test data that do not exist; called before the training."""
    if STDIN in names:
        raise SeqloomError("--test names files or a dataset; standard input is for the training data alone")
    for file in dataset_files(names, "test", task):
        if not Path(file).exists():
            raise missing(file)


def score(
    folder: Path,
    model: Any,
    names: Sequence[str],
    note: Callable[[str], object],
    search: Search | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The evaluation of a model or an ensemble on test data, also written into the folder. `note` is called with
    remarks on the data."""
    try:
        examples, notes = examples_of(model, names, None)
        for text in notes:
            note(f"test data: {text}")
        scores = model.evaluation_details(examples, search or Search(), most=NO_LIMIT, **options)
    except SeqloomError as error:
        raise SeqloomError(f"{folder}: is trained, but not scored on its test data: {error}") from error
    write_json(folder / evaluation_file("test"), scores)
    return scores


def lines(
    scores: Mapping[str, Any], wanted: Sequence[str] | None = None, beside: Callable[[str], str] = lambda _: ""
) -> list[str]:
    """Lines with the scores, under the same names as in `evaluate`; `beside(name)` is appended to a line."""
    rows = list(_rows(scores, wanted))
    width = max([12, *(len(name) for name, *_ in rows)])
    lines = [counted(scores["count"], f"test {scores.get('unit', 'examples')}")]
    for name, value, low, high in rows:
        interval = "" if low is None else f"  95 %: {low:.2f} … {high:.2f}"
        lines.append(f"  {name:<{width}} {'none' if value is None else f'{value:.2f}':>8}{interval}{beside(name)}")
    return lines


def _rows(scores: Mapping[str, Any], wanted: Sequence[str] | None) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, value and interval. A `wer` that equals the `per` is left out unless it is wanted; for pronunciations the
    word error rate is the share of words with any error."""
    metrics = scores["metrics"]
    for name in wanted or [name for name in metrics if name != "wer" or metrics["wer"] != metrics.get("per")]:
        value, (low, high) = metrics[name], scores["intervals"].get(name, (None, None))
        yield name, value, low, high
        if name == "exact_match" and scores.get("pronunciations") and value is not None:
            lowest, highest = (None, None) if low is None else (100 - high, 100 - low)
            yield "word error rate", 100 - value, lowest, highest
