"""Every setting that `--set` takes, with its default, its choices and a line of help; imports no torch.

`signatures.py` collects them from the constructors' signatures into `setting_table.json` beside this file, so that
shells can complete settings at once. After a new keyword or entry of a table:
`python -m seqloom.runs.settings.signatures`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import known
from seqloom.runs.settings.setting_help import HELP
from seqloom.tasks.presets import default_model, preset, suited
from seqloom.tasks.registry import TASKS
from seqloom.training.settings import Training

BY_TASK = {"select": "scores", "objective": "objectives"}  # settings whose choices depend on the task
FILE = Path(__file__).with_suffix(".json")


class Setting(NamedTuple):
    """One key of `--set`. `takes`: the type of its value in words; `choices`: its values if they are a few names."""

    key: str
    default: Any
    takes: str
    choices: tuple[str, ...]
    about: str


def settings(task: str, model: str | None = None, size: str = "small") -> list[Setting]:
    """All settings of a task with one of its models: of the model, the training and the data."""
    collected = _collected()
    if known(task, TASKS, "task") not in collected["tasks"]:  # a plug-in
        from seqloom.runs.settings.signatures import collect

        collected = collect()
    of_task = collected["tasks"][task]
    chosen = preset(task, model or default_model(task), size)
    found = list(_part_settings(collected, of_task["models"], {"kind": of_task["kind"], **chosen}, ""))
    training = Training.of({**of_task["training"], **suited(task, chosen)})
    for section, keywords in (("training", collected["training"]), ("data", of_task["data"])):
        for name, entry in keywords.items():
            default = getattr(training, name) if section == "training" else entry["default"]
            choices = of_task[BY_TASK[name]] if section == "training" and name in BY_TASK else entry["choices"]
            found.append(Setting(f"{section}.{name}", default, entry["takes"], tuple(choices), entry["about"]))
    return found


def _part_settings(collected: Mapping[str, Any], table: str, choice: Any, prefix: str) -> Iterator[Setting]:
    """The settings of a part and of the parts within it."""
    entries = collected["tables"][table]
    options = {"kind": choice} if isinstance(choice, str) else dict(choice)
    kind = options.pop("kind")
    options = {**entries[kind]["with"], **options}
    if not prefix and len(entries) > 1:
        yield Setting("kind", kind, "text", tuple(entries), HELP["kind"])
    for name, entry in collected["parts"][entries[kind]["part"]].items():
        value = options.get(name, entry["default"])
        inner = entry.get("table")
        if inner is None:
            yield Setting(prefix + name, value, entry["takes"], tuple(entry["choices"]), entry["about"])
            continue
        if isinstance(value, Mapping) and "kind" not in value:
            default = entry["default"]
            value = {**({"kind": default} if isinstance(default, str) else default), **value}
        kind_of_part = value if isinstance(value, str) else value["kind"]
        yield Setting(prefix + name, kind_of_part, "text", tuple(collected["tables"][inner]), entry["about"])
        yield from _part_settings(collected, inner, value, f"{prefix}{name}.")


@cache
def _collected() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
