"""Every setting that `--set` takes, with its default, its choices and a line on it; free of torch.

All of it was read off the constructors' signatures by `signatures.py`, into `setting_table.json` beside this file, so
that a shell can complete a setting at once. After a new keyword or entry of a table:
`python -m seqloom.runs.settings.signatures`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import known
from seqloom.runs.settings.setting_help import WORDS
from seqloom.tasks.presets import DEFAULT, preset, suited
from seqloom.training.settings import Training

FILE = Path(__file__).with_suffix(".json")


class Setting(NamedTuple):
    """One key of `--set`. `takes`: what a value is; `choices`: where it is one of a few names."""

    key: str
    default: Any
    takes: str
    choices: tuple[str, ...]
    about: str


def settings(task: str, model: str | None = None, size: str = "small") -> list[Setting]:
    """All of a task with one of its models: of the model, of the training, of the data."""
    book = _book()
    mine = book["tasks"][known(task, book["tasks"], "task")]
    chosen = preset(task, model or DEFAULT[task], size)
    found = list(_opened(book, mine["models"], {"kind": mine["kind"], **chosen}, ""))
    trained = Training.of({**mine["training"], **suited(task, chosen)})
    for section, keywords in (("training", book["training"]), ("data", mine["data"])):
        for name, told in keywords.items():
            usual = getattr(trained, name) if section == "training" else told["default"]
            choices = mine["scores"] if (section, name) == ("training", "select") else told["choices"]
            found.append(Setting(f"{section}.{name}", usual, told["takes"], tuple(choices), told["about"]))
    return found


def _opened(book: Mapping[str, Any], table: str, choice: Any, prefix: str) -> Iterator[Setting]:
    """The settings of a part, and those of the parts that it is made of."""
    entries = book["tables"][table]
    options = {"kind": choice} if isinstance(choice, str) else dict(choice)
    kind = options.pop("kind")
    options = {**entries[kind]["with"], **options}
    if not prefix and len(entries) > 1:
        yield Setting("kind", kind, "text", tuple(entries), WORDS["kind"])
    for name, told in book["parts"][entries[kind]["part"]].items():
        value = options.get(name, told["default"])
        inner = told.get("table")
        if inner is None:
            yield Setting(prefix + name, value, told["takes"], tuple(told["choices"]), told["about"])
            continue
        if isinstance(value, Mapping) and "kind" not in value:
            usual = told["default"]
            value = {**({"kind": usual} if isinstance(usual, str) else usual), **value}
        shown = value if isinstance(value, str) else value["kind"]
        yield Setting(prefix + name, shown, "text", tuple(book["tables"][inner]), told["about"])
        yield from _opened(book, inner, value, f"{prefix}{name}.")


@cache
def _book() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
