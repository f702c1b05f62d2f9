"""What `setting_table.json` holds, read off the signatures of all that a config can name.

`python -m seqloom.runs.settings.signatures` writes it again.
"""

from __future__ import annotations

import inspect
import io
import json
import tokenize
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Union, get_args, get_origin

from seqloom.build import nested_tables, settings
from seqloom.data.batches.labels import TARGETS
from seqloom.data.batches.language import BATCHES
from seqloom.files import write_atomic
from seqloom.models.encoders.convolutional import GATE
from seqloom.models.encoders.layer_views import VIEWS
from seqloom.options import hints_of
from seqloom.parts.attention.normalizers import NORMALIZERS
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.transformer.residual import RESIDUALS
from seqloom.runs.settings.setting_help import HELP
from seqloom.runs.settings.setting_table import FILE
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task
from seqloom.training.objectives.objective_table import objectives_of
from seqloom.training.optim.optimizer_table import OPTIMIZERS
from seqloom.training.optim.schedule import SCHEDULES
from seqloom.training.settings import AUTO, CUDA_GRAPH_MODES, PRECISIONS, Training

# Texts that are one of a few names, by keyword; `Class.keyword` goes before `keyword`.
CHOICES: dict[str, Sequence[str]] = {
    "Training.optimizer": tuple(OPTIMIZERS),
    "Training.schedule": tuple(SCHEDULES),
    "Training.precision": PRECISIONS,
    "Training.cuda_graphs": CUDA_GRAPH_MODES,
    "LabelOptions.target": TARGETS,
    "StreamOptions.batches": BATCHES,
    "truncate": ("tail", "head"),
    "activation": tuple(ACTIVATIONS),
    "RnnCell.activation": ("tanh", "relu", "none"),
    "ConvolutionEncoder.activation": (GATE, *ACTIVATIONS),
    "ConvolutionStack.activation": (GATE, *ACTIVATIONS),
    "normalizer": tuple(NORMALIZERS),
    "residual": RESIDUALS,
    "TransformerEncoder.residual": (*RESIDUALS, "reversible"),
    "TransformerStack.residual": (*RESIDUALS, "reversible"),
    "norm": ("before", "after"),
    "views": VIEWS,
    "GruCell.reset_gate": ("before", "after"),
    "context": ("last", "transform", "pool"),
    "context_to": ("initial", "input", "both"),
    "query": ("previous", "current"),
    "initial_state": ("last", "transform", "pool", "zero"),
    "Floater.start": ("sinusoidal", "zero"),
    "layout": ("interleaved", "halves"),
    "projections": ("", "q", "k", "v", "qk", "qv", "kv", "qkv"),
}
TAKES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
TAKES |= {list: "a list", dict: "keys and values"}


class TableCollector:
    """Collects tables, the parts that they name and the keywords of each part, as values for JSON."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        self._named: dict[int, str] = {}

    def table(self, table: Mapping[str, Any], name: str) -> str:
        """Collect a table under the name by which it was met first; returns this name."""
        if id(table) in self._named:
            return self._named[id(table)]
        self._named[id(table)] = name
        entries = self.tables[name] = {}
        for kind in table:
            make, options = table[kind], {}
            while isinstance(make, Mapping):
                options = {**{key: value for key, value in make.items() if key != "kind"}, **options}
                make = table[make["kind"]]
            entries[kind] = {"part": self.part(make), "with": options}
        return name

    def part(self, make: Callable[..., Any]) -> str:
        name = f"{make.__module__.removeprefix('seqloom.')}.{make.__name__}"
        if name not in self.parts:
            keywords = self.parts[name] = {}
            tables, comments = nested_tables(make), _comments(make)
            for key, default in settings(make).items():
                keywords[key] = _described(make, key, default, comments)
                if key in tables:
                    keywords[key]["table"] = self.table(tables[key], f"{name}.{key}")
        return name


def collect() -> dict[str, Any]:
    """The settings of all tasks, from the signatures of the constructors."""
    book, tasks = TableCollector(), {}
    for name in TASKS:
        task = get_task(name)
        defaults, comments = task.options(), _comments(task.options)
        tasks[name] = {
            "models": book.table(task.models, name),
            "kind": task.kind,
            "training": dict(task.training),
            "scores": list(task.scores),
            "objectives": [AUTO, *objectives_of(name)],
            "data": {
                field.name: _described(task.options, field.name, getattr(defaults, field.name), comments)
                for field in fields(defaults)
            },
        }
    comments = _comments(Training)
    training = {field.name: _described(Training, field.name, field.default, comments) for field in fields(Training)}
    return {"tasks": tasks, "training": training, "tables": book.tables, "parts": book.parts}


def _described(make: Any, key: str, default: Any, comments: Mapping[str, str]) -> dict[str, Any]:
    hint = hints_of(make)[key]
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    names = [TAKES.get(get_origin(kind) or kind, "") for kind in kinds if kind is not type(None)]
    takes = " or ".join(dict.fromkeys(filter(None, names))) or "text"
    choices = list(_lookup(make, key, CHOICES) or ()) if str in kinds else []
    about = HELP.get(f"{make.__name__}.{key}") or comments.get(key) or _lookup(make, key, HELP)
    return {"default": default, "takes": takes, "choices": choices, "about": about or ""}


def _lookup(make: Any, key: str, table: Mapping[str, Any]) -> Any:
    """The entry for the keyword in this class, in a base class, or for any class."""
    names = [f"{base.__name__}.{key}" for base in inspect.getmro(make)] if isinstance(make, type) else []
    return next((table[name] for name in [*names, key] if name in table), None)


def _comments(make: Any) -> dict[str, str]:
    """The comments of keywords that have a line of their own."""
    found: dict[str, str] = {}
    first = ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(make)).readline):
        if token.type == tokenize.NAME and not token.line[: token.start[1]].strip():
            first = token.string if f"{token.string}:" in token.line else ""
        if token.type == tokenize.COMMENT and first and token.line.strip().startswith(f"{first}:"):
            found.setdefault(first, token.string.lstrip("# ").strip().replace("None:", "null:"))
    return {name: text for name, text in found.items() if not text.startswith(("pyright:", "noqa", "type:"))}


def table_json() -> str:
    return json.dumps(collect(), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    write_atomic(FILE, table_json())
