"""What all trained models share towards Python: `predict` with plain keywords for one source or many, and a repr."""

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

from seqloom.decoding.batched import Answer, warn_of_long
from seqloom.decoding.options import Search
from seqloom.documents import parse_json
from seqloom.errors import SeqloomError
from seqloom.options import checked, hints_of

Source = TypeVar("Source")
JOURNAL = "metrics.jsonl"
LONGEST = 1 << 16  # bytes of the journal's end that are looked through for the best validation


class Ways(TypedDict, total=False):
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
    rows: int


ELSEWHERE = {
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
    """What a runner is made of."""

    folder: Path
    config: dict[str, Any]
    model: Any
    vocabularies: Mapping[str, Any]  # as JSON, by name
    device: torch.device


class Predicting(Generic[Source]):
    """The base of every task's runner, which has `answers`. `one` says what a single source is."""

    one: tuple[type, ...] = (str,)  # what a single source is, as against several
    each: tuple[type, ...] = (str,)  # what each of several may be

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
    def predict(self, sources: str, search: Search | None = None, **ways: Unpack[Ways]) -> str: ...
    @overload
    def predict(
        self, sources: str, search: Search | None = None, *, n_best: int, **ways: Unpack[Ways]
    ) -> list[str]: ...
    @overload
    def predict(self, sources: Iterable[Source], search: Search | None = None, **ways: Unpack[Ways]) -> list[str]: ...
    @overload
    def predict(
        self, sources: Iterable[Source], search: Search | None = None, *, n_best: int, **ways: Unpack[Ways]
    ) -> list[list[str]]: ...
    def predict(self, sources: Any, search: Search | None = None, *, n_best: int | None = None, **ways: Any) -> Any:
        """The best answer to each source, or to a single one; with `n_best` a list of so many, best first.

        How to search: plain keywords such as `beam=5`, or a `Search`. Scores come with `answers`.
        """
        search, rows = search_of(search, n_best, ways)
        alone = isinstance(sources, self.one)
        if not alone and (not hasattr(sources, "__iter__") or isinstance(sources, Mapping)):
            raise SeqloomError(f"predict takes one {self._kind()} or several, here {type(sources).__name__}")
        if not alone and hasattr(sources, "columns"):  # to go through a DataFrame gives the names of its columns
            part = "its rows as dicts" if Mapping in self.each else "a column of it, as in predict(frame['source'])"
            raise SeqloomError(f"predict takes no {type(sources).__name__}: give {part}")
        found = self.answers(self.warned(self._checked([sources] if alone else sources)), search, rows)
        texts = [[answer.text for answer in several] for several in found]
        predictions = texts if n_best is not None else [several[0] for several in texts]
        return predictions[0] if alone else predictions

    def length(self, source: Source) -> int:
        """How many tokens a source has, of models that very many take long; 0 where there are not many, or it is no
        matter."""
        return 0

    def warned(self, sources: Iterable[Source], on_long: Callable[[str], object] = warn) -> Iterator[Source]:
        """The sources for `answers`, which warns of nothing; of the first very long one a warning comes in time."""
        return warn_of_long(sources, self.length, on_long)

    unseen_unit = "characters"  # what `unknown` gives

    def unknown(self, source: Source) -> list[str]:
        """The characters of a source that the model has never seen, where it reads characters."""
        return []

    def answer_json(self, source: Source, answer: Answer) -> dict[str, Any]:
        """What more there is to say of an answer, for JSON."""
        return {}

    def _checked(self, sources: Iterable[Any]) -> Iterator[Any]:
        for number, source in enumerate(sources, 1):
            if not isinstance(source, self.each):
                raise SeqloomError(f"source {number:,}: predict takes a {self._kind()}, here {type(source).__name__}")
            yield source

    def _kind(self) -> str:
        return " or ".join({str: "text", Mapping: "dict", Sequence: "list of words"}[kind] for kind in self.each)

    def __repr__(self) -> str:
        parameters = parameters_of(getattr(self, "model", None))
        return f"{type(self).__name__}({described(self.folder, self.config, parameters)})"


def search_of(search: Search | None, n_best: int | None, ways: Mapping[str, Any]) -> tuple[Search, int]:
    """A `Search` from plain keywords, and the rows of a batch; an unknown keyword raises and suggests one."""
    names = [*hints_of(Search), "rows"]
    for name in ways:
        if name not in names:
            near = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f". Choose from: {', '.join(sorted(names))}"
            raise SeqloomError(f"unknown keyword of predict {name!r}{hint}")
    given = dict(ways) if n_best is None else {**ways, "n_best": n_best}
    rows = given.pop("rows", 64)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise SeqloomError(f"rows, the sources of a batch, is a whole number of 1 or more, not {rows!r}")
    if search is not None and given:
        raise SeqloomError(f"{next(iter(given))} is a keyword of Search: give a Search or keywords, not both")
    if search is not None:
        return search, rows
    given = {**given, **checked(Search, {name: one for name, one in given.items() if name != "never"}, "predict")}
    if not given.get("sample") and {"temperature", "top_k", "top_p"} & given.keys():
        raise SeqloomError("temperature, top_k and top_p shape what is sampled: add sample=True")
    if n_best is not None and "beam" not in given and not given.get("sample"):
        given["beam"] = n_best
    return Search(**given), rows


def parameters_of(model: Any) -> int | None:
    with suppress(AttributeError, TypeError):
        return sum(parameter.numel() for parameter in model.parameters()) or None
    return None


def stored_parameters(path: Path) -> int | None:
    """How many numbers a safetensors file holds, from its header; None if it cannot be read."""
    if not path.is_file():
        return None
    with suppress(OSError, safetensors.SafetensorError), safetensors.safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return None


def described(
    folder: Path, config: Mapping[str, Any], parameters: int | None = None, best: Mapping[str, Any] | None = None
) -> str:
    """A run in a line: task, model, parameters, the best validation and the folder."""
    named, members = config.get("preset") or {}, config.get("members") or ()
    model = str(named.get("model", "model"))
    parts = [
        str(config.get("task", "")),
        model if model.endswith((".yaml", ".yml")) else f"{model} {named.get('size', '')}".strip(),
        f"{len(members)} models together" if members else None,
        None if parameters is None else f"{parameters:,} parameters",
        None if members else _score(config, _best(folder) if best is None else best),
        f"folder {str(folder)!r}",
    ]
    return ", ".join(filter(None, parts))


def _score(config: Mapping[str, Any], best: Mapping[str, Any] | None) -> str | None:
    scores = (best or {}).get("scores") or {}
    select = (config.get("training") or {}).get("select")
    name = select if select in scores else "loss"
    value, step = scores.get(name), (best or {}).get("step")
    return f"{name} {value:.4g} at step {step:,}" if isinstance(value, int | float) and isinstance(step, int) else None


def _best(folder: Path) -> dict[str, Any] | None:
    """The last best validation that the journal tells of, from its end; None where it says nothing."""
    path = folder / JOURNAL
    if not path.is_file():
        return None
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - LONGEST))
        scores = None
        for raw in reversed(file.read().split(b"\n")):
            with suppress(SeqloomError):
                line = parse_json(raw, path)
                if not isinstance(line, dict):
                    continue
                if scores is None and line.get("best") and isinstance(line.get("valid"), dict):
                    scores = line["valid"]
                if scores is not None and "step" in line:  # an average has none: it is of the last step before it
                    return {"step": line["step"], "scores": scores}
    return None
