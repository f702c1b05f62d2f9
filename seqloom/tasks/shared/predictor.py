"""The base of all trained models: `predict` with plain keywords for one source or several, and a repr."""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

import safetensors
import torch

from seqloom.build import kind_of
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.pairs import OnNote, read_sources
from seqloom.decoding.batched import Answer, warn_of_long
from seqloom.decoding.search_options import AUTO, BEAM, GREEDY, Search
from seqloom.documents import parse_json
from seqloom.errors import SeqloomError
from seqloom.options import checked, hints_of

Source = TypeVar("Source")
METRICS_FILE = "metrics.jsonl"
LOG_TAIL = 1 << 16  # bytes of the journal's end that are looked through for the best validation


class PredictKeywords(TypedDict, total=False):
    """How to predict: the keywords of `Search` but `n_best`, and `rows`, how many sources make a batch."""

    beam: int
    alpha: float
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    first: int | None
    close: bool
    never: tuple[int, ...]
    decoding: str | dict[str, Any]
    rows: int


OTHER_LIBRARIES = {
    "num_beams": "beam",
    "beam_size": "beam",
    "batch": "rows",
    "batch_size": "rows",
    "do_sample": "sample",
    "num_return_sequences": "n_best",
    "length_penalty": "alpha",
}


def warn(text: str) -> None:
    print(f"seqloom: warning: {text}", file=sys.stderr)


@dataclass(frozen=True)
class LoadedRun:
    """A run in memory, from which its task makes a runner."""

    folder: Path
    config: dict[str, Any]
    model: Any
    vocabularies: Mapping[str, Any]  # as JSON, by name
    device: torch.device


class Predictor(Generic[Source]):
    """The base of every task's runner, which adds `answers`."""

    single_types: tuple[type, ...] = (str,)  # what `predict` takes as one source
    item_types: tuple[type, ...] = (str,)  # the types of the sources in an iterable

    def __init__(self, run: LoadedRun) -> None:
        self.folder, self.config, self.device, self.model = run.folder, run.config, run.device, run.model

    def evaluation_details(self, examples: Sequence[Any], *how: Any, **more: Any) -> dict[str, Any]:
        raise NotImplementedError

    def record(self, examples: Sequence[Any], *how: Any, **more: Any) -> dict[str, Any]:
        """The former name of `evaluation_details`."""
        warnings.warn("record is now called evaluation_details", DeprecationWarning, stacklevel=2)
        return self.evaluation_details(examples, *how, **more)

    def answers(
        self, sources: Iterable[Source], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        raise NotImplementedError

    @overload
    def predict(self, sources: str, search: Search | None = None, **ways: Unpack[PredictKeywords]) -> str: ...
    @overload
    def predict(
        self, sources: str, search: Search | None = None, *, n_best: int, **keywords: Unpack[PredictKeywords]
    ) -> list[str]: ...
    @overload
    def predict(
        self, sources: Iterable[Source], search: Search | None = None, **keywords: Unpack[PredictKeywords]
    ) -> list[str]: ...
    @overload
    def predict(
        self,
        sources: Iterable[Source],
        search: Search | None = None,
        *,
        n_best: int,
        **keywords: Unpack[PredictKeywords],
    ) -> list[list[str]]: ...
    def predict(self, sources: Any, search: Search | None = None, *, n_best: int | None = None, **keywords: Any) -> Any:
        """The best answer to each source, or to a single one; with `n_best` a list of so many, best first.

        The search is given by keywords such as `beam=5` or as a `Search`. `answers` gives scores too.
        """
        search, rows = search_of(search, n_best, keywords)
        alone = isinstance(sources, self.single_types)
        if not alone and (not hasattr(sources, "__iter__") or isinstance(sources, Mapping)):
            raise SeqloomError(f"predict takes one {self._type_names()} or several, here {type(sources).__name__}")
        if not alone and hasattr(sources, "columns"):  # iterating over a DataFrame gives the names of its columns
            part = (
                "its rows as dicts" if Mapping in self.item_types else "a column of it, as in predict(frame['source'])"
            )
            raise SeqloomError(f"predict takes no {type(sources).__name__}: give {part}")
        checked_sources = self._check_types([sources] if alone else sources)
        answers = self.answers(self.warn_of_long(checked_sources), search, rows)
        texts = [[answer.text for answer in n_best_answers] for n_best_answers in answers]
        predictions = texts if n_best is not None else [n_best_texts[0] for n_best_texts in texts]
        return predictions[0] if alone else predictions

    def sources(self, file: str, reading: ReadOptions | None = None, on_note: OnNote | None = None) -> Iterator[Source]:
        """The sources in a file, as `answers` takes them, one a line."""
        yield from read_sources(file, reading, on_note)  # pyright: ignore[reportReturnType]

    def length(self, source: Source) -> int:
        """The number of tokens of a source, for models to which very long sources are expensive; else 0."""
        return 0

    def warn_of_long(self, sources: Iterable[Source], on_long: Callable[[str], object] = warn) -> Iterator[Source]:
        """The sources for `answers`, with a warning before the first very long one."""
        return warn_of_long(sources, self.length, on_long)

    unseen_unit = "characters"  # that `unknown` returns, or words

    def unknown(self, source: Source) -> list[str]:
        """The characters or words of a source that are not in the vocabulary."""
        return []

    def answer_json(self, source: Source, answer: Answer) -> dict[str, Any]:
        """Further facts of an answer for JSON."""
        return {}

    def _check_types(self, sources: Iterable[Any]) -> Iterator[Any]:
        for number, source in enumerate(sources, 1):
            if not isinstance(source, self.item_types):
                given = type(source).__name__
                raise SeqloomError(f"source {number:,}: predict takes a {self._type_names()}, here {given}")
            yield source

    def _type_names(self) -> str:
        return " or ".join({str: "text", Mapping: "dict", Sequence: "list of words"}[kind] for kind in self.item_types)

    def __repr__(self) -> str:
        parameters = parameters_of(getattr(self, "model", None))
        return f"{type(self).__name__}({describe_run(self.folder, self.config, parameters)})"


def search_of(search: Search | None, n_best: int | None, keywords: Mapping[str, Any]) -> tuple[Search, int]:
    """A `Search` from plain keywords, and the rows of a batch; the error for an unknown keyword suggests one."""
    names = [*hints_of(Search), "rows"]
    for name in keywords:
        if name not in names:
            near = [OTHER_LIBRARIES[name]] if name in OTHER_LIBRARIES else difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f". Choose from: {', '.join(sorted(names))}"
            raise SeqloomError(f"unknown keyword of predict {name!r}{hint}")
    given = dict(keywords) if n_best is None else {**keywords, "n_best": n_best}
    rows = given.pop("rows", 64)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise SeqloomError(f"rows, the sources of a batch, is a whole number of 1 or more, not {rows!r}")
    if search is not None and given:
        raise SeqloomError(f"{next(iter(given))} is a keyword of Search: give a Search or keywords, not both")
    if search is not None:
        return search, rows
    given = {**given, **checked(Search, {name: one for name, one in given.items() if name != "never"}, "predict")}
    auto = kind_of(given.get("decoding", AUTO)) in (AUTO, GREEDY, BEAM)
    if not given.get("sample") and auto and {"temperature", "top_k", "top_p"} & given.keys():
        raise SeqloomError("temperature, top_k and top_p shape what is sampled: add sample=True")
    if n_best is not None and "beam" not in given and auto and not given.get("sample"):
        given["beam"] = n_best
    return Search(**given), rows


def parameters_of(model: Any) -> int | None:
    with suppress(AttributeError, TypeError):
        return sum(parameter.numel() for parameter in model.parameters()) or None
    return None


def stored_parameters(path: Path) -> int | None:
    """The number of parameters in a safetensors file, from its header; None if it cannot be read."""
    if not path.is_file():
        return None
    with suppress(OSError, safetensors.SafetensorError), safetensors.safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return None


def describe_run(
    folder: Path, config: Mapping[str, Any], parameters: int | None = None, best: Mapping[str, Any] | None = None
) -> str:
    """A run on one line: task, model, parameters, the best validation and the folder."""
    named, members = config.get("preset") or {}, config.get("members") or ()
    model = str(named.get("model", "model"))
    parts = [
        str(config.get("task", "")),
        model if model.endswith((".yaml", ".yml")) else f"{model} {named.get('size', '')}".strip(),
        f"{len(members)} models together" if members else None,
        None if parameters is None else f"{parameters:,} parameters",
        None if members else _best_score_text(config, _best_in_log(folder) if best is None else best),
        f"folder {str(folder)!r}",
    ]
    return ", ".join(filter(None, parts))


def _best_score_text(config: Mapping[str, Any], best: Mapping[str, Any] | None) -> str | None:
    scores = (best or {}).get("scores") or {}
    select = (config.get("training") or {}).get("select")
    name = select if select in scores else "loss"
    value, step = scores.get(name), (best or {}).get("step")
    return f"{name} {value:.4g} at step {step:,}" if isinstance(value, int | float) and isinstance(step, int) else None


def _best_in_log(folder: Path) -> dict[str, Any] | None:
    """The last validation marked as best in the end of metrics.jsonl; None if there is none."""
    path = folder / METRICS_FILE
    if not path.is_file():
        return None
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_TAIL))
        scores = None
        for raw in reversed(file.read().split(b"\n")):
            with suppress(SeqloomError):
                line = parse_json(raw, path)
                if not isinstance(line, dict):
                    continue
                if scores is None and line.get("best") and isinstance(line.get("valid"), dict):
                    scores = line["valid"]
                if scores is not None and "step" in line:  # an average has no step: it has the last one before it
                    return {"step": line["step"], "scores": scores}
    return None
