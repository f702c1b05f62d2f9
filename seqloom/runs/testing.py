"""A trained model scored on data that it has not seen, and those scores for the eye."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.data import registry
from seqloom.data.amounts import counted
from seqloom.data.lines import STDIN
from seqloom.decoding.search import Search
from seqloom.errors import SeqloomError, missing
from seqloom.files import write_json
from seqloom.runs.load import load
from seqloom.runs.report import evaluation
from seqloom.tasks.evaluation import examples_of

EVERY = 10**9  # a test set is scored whole


def check(names: Sequence[str], task: str) -> None:
    """That there is something to be scored on: better said before a training than after it."""
    if STDIN in names:
        raise SeqloomError("--test names files or a dataset; standard input is for the training data alone")
    for file in registry.resolve(names, "test", task):
        if not Path(file).exists():
            raise missing(file)


def score(folder: Path, names: Sequence[str], device: str, search: Search | None = None, **more: Any) -> dict[str, Any]:
    """What a run, or several together, reach on test data; left in the folder too."""
    model = load(folder, device=device)
    try:
        examples, _ = examples_of(model, names, None)
        scores = model.record(examples, search or Search(), most=EVERY, **more)
    except SeqloomError as error:
        raise SeqloomError(f"{folder}: is trained, but not scored on its test data: {error}") from error
    write_json(folder / evaluation("test"), scores)
    return scores


def lines(
    scores: Mapping[str, Any], wanted: Sequence[str] | None = None, beside: Callable[[str], str] = lambda _: ""
) -> list[str]:
    """Scores on test data; `beside`: what stands behind the one of a name."""
    told = [counted(scores["count"], f"test {scores.get('unit', 'examples')}")]
    names = wanted or list(scores["metrics"])
    widest = max([12, *map(len, names)])
    for name in names:
        value, (low, high) = scores["metrics"][name], scores["intervals"].get(name, (None, None))
        spread = "" if low is None else f"  95 %: {low:.2f} … {high:.2f}"
        told.append(f"  {name:<{widest}} {'none' if value is None else f'{value:.2f}':>8}{spread}{beside(name)}")
    return told
