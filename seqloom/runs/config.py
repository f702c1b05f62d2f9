"""A run's config: complete, so that nothing about a run is hidden in a default.

Sections: `format`, `seqloom` (its version), `task`, `preset`, `data` (how text became numbers), `model`, `training`,
`decoding` (how long targets get) and `inputs` (what was read).
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from seqloom.build import build, by_current_names, change, complete
from seqloom.build import settings as keywords
from seqloom.documents import read_yaml
from seqloom.errors import SeqloomError, known, setting
from seqloom.files import write_atomic
from seqloom.options import checked, flat, hints_of, set_values
from seqloom.runs.folder.folder_checks import check_config, is_whole
from seqloom.safety import check_own, failing
from seqloom.setting_names import check_one, renamed
from seqloom.tasks.presets import DEFAULT, TASKS, merge, preset, suited
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared.task import Task
from seqloom.training.settings import Training
from seqloom.version import FORMAT, __version__

FILE = "config.yaml"
ENSEMBLE = "ensemble.json"  # instead of a config, in a folder that stands for several runs
SECTIONS = ("data", "model", "training")
NEW_NAMES = 4  # the format since which settings have the names of now
BATCH = ("batch_rows", "batch_tokens")
YAML = (".yaml", ".yml")
# What is read, written or deleted by these names in a run's folder; other things in it are the user's own.
OURS = re.compile(
    r"\.lock|\..*\.(tmp|old)|.*\.(json|yaml|safetensors)|metrics\.jsonl|report\.html|README\.md"
    r"|checkpoints|engines|(fold-)?[0-9]+"
)
# What may change from one resume to the next without changing what was trained so far.
EXTENDABLE = (
    "epochs",
    "max_steps",
    "time",
    "patience",
    "log_every",
    "keep_checkpoints",
    "average_checkpoints",
    "shard",
)


def compose(
    task: str,
    model: str | Mapping[str, Any] | None,
    size: str | None,
    data: Mapping[str, Any],
    training: Mapping[str, Any],
    settings: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The complete config from a preset or a YAML file, options, and `--set` keys, later ones winning.

    `model` may also be what a YAML file would hold; it is named by its content. With `saved`, the config of a run that
    goes on, what is not given stays as it was.
    """
    return composed(task, model, size, data, training, settings, saved)[0]


def composed(
    task: str,
    model: str | Mapping[str, Any] | None,
    size: str | None,
    data: Mapping[str, Any],
    training: Mapping[str, Any],
    settings: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], bool]:
    """`compose`, and whether anybody chose how large a batch is; else the size of the data may."""
    with setting():
        return _composed(task, model, size, {"data": data, "training": training}, settings, saved)


def _composed(
    task: str,
    model: str | Mapping[str, Any] | None,
    size: str | None,
    given: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    saved: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], bool]:
    held = None if model is None or isinstance(model, str) else dict(model)
    shape = find(task)
    own: dict[str, Any] = {"data": set_values(section(task, "data", given["data"])), "model": {}, "training": {}}
    if saved is not None:
        own = {name: merge(saved[name], own[name]) for name in SECTIONS}
    named = {"model": DEFAULT[task], "size": "small"} if saved is None else saved["preset"]
    chosen = {**named, **set_values({"model": model if held is None else _name_of(held), "size": size})}
    if size is not None and chosen["model"].endswith(YAML):
        told = chosen["model"] if held is None else "the dictionary"
        raise SeqloomError(f"--size goes with the name of a preset; {told} says its own sizes")
    if saved is None or chosen != named:
        own["model"], own["training"] = _model(task, chosen, own["training"], held)
    own["training"].update(set_values(section(task, "training", given["training"])))
    _set(own, settings, shape)
    built = complete(shape.models, {"kind": shape.kind, **own["model"]})
    trained = Training.of(_over({**shape.training, **suited(task, own["model"])}, own["training"]))
    known(trained.select, shape.scores, f"score to select by in {task}")
    config = {
        "format": FORMAT,
        "seqloom": __version__,
        "task": task,
        "preset": chosen,
        "data": asdict(data_options(task, own["data"])),
        "model": built,
        "training": asdict(trained),
    }
    return config, any(own["training"].get(name) for name in BATCH)


def built(config: Mapping[str, Any], sizes: Mapping[str, Any]) -> nn.Module:
    """The model of a config. What only its parts can see, such as a width that the heads do not divide, is a setting's
    fault too."""
    with setting():
        return build(find(config["task"]).models, config["model"], **sizes)


def _model(
    task: str, chosen: Mapping[str, str], training: dict[str, Any], held: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    if not chosen["model"].endswith(YAML):
        return preset(task, chosen["model"], chosen["size"]), training
    if held is None:
        parts, more = model_file(task, chosen["model"])
    else:
        parts, more = model_parts(task, copy.deepcopy(held), "model=")
    return parts, {**training, **section(task, "training", more)}


def _name_of(model: Mapping[str, Any]) -> str:
    """A name by content for a model that was given as a dictionary."""
    try:
        told = json.dumps(model, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SeqloomError(f"model= takes a dictionary of names, numbers and texts: {error}") from error
    return f"given-{hashlib.sha256(told.encode()).hexdigest()[:12]}{YAML[0]}"


def _over(suited: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What the user sets wins; a batch is measured in rows or in tokens, so that one takes the other's place."""
    if any(own.get(name) for name in BATCH):
        suited = {name: value for name, value in suited.items() if name not in BATCH}
    return {**suited, **own}


def _place(own: dict[str, Any], key: str, shape: Task) -> tuple[dict[str, Any], str]:
    """Where a `--set` key goes: `training.x`, `data.x`, `model.x`; anything else is a part of the model."""
    first, _, rest = key.partition(".")
    if first in SECTIONS:
        if not rest:
            raise SeqloomError(f"cannot set {key!r}: name a setting of {first}, as in training.clip=1.0")
        return own[first], rest
    kind = own["model"].get("kind", shape.kind)
    make = shape.models.get(kind) if isinstance(kind, str) else None
    if callable(make):  # else its kind is not known, which is said when it is chosen
        known(first, {"kind", *SECTIONS, *keywords(make)}, "setting")
    return own["model"], key


def section(task: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """`data` or `training` of a task by the names that settings have now."""
    return renamed(name, values, hints_of(find(task).options if name == "data" else Training), f"{name}.")


def _set(own: dict[str, Any], settings: Mapping[str, Any], shape: Task) -> None:
    """`--set` keys one after the other: those of a part by the names that the part has now, which is the one chosen
    before, if need be by another of these keys."""
    given: dict[str, tuple[str, Any]] = {}
    for key, value in settings.items():
        new, value = _current(key, value, own["model"], shape)
        if new in given:
            check_one(given[new][0], key, given[new][1] == value, new)
        given[new] = key, value
        change(*_place(own, new, shape), value)


def _current(key: str, value: Any, model: Mapping[str, Any], shape: Task) -> tuple[str, Any]:
    """A `--set` key and its value by current names."""
    first, _, rest = key.partition(".")
    if first in SECTIONS and not rest:
        return key, value
    if first in ("data", "training"):
        name, dot, more = rest.partition(".")
        ((name, value),) = section(shape.name, first, {name: value}).items()
        return f"{first}.{name}{dot}{more}", value
    path = (rest if first == "model" else key).split(".")
    inner: Any = value
    for name in reversed(path):
        inner = {name: inner}
    inner, found = by_current_names(shape.models, inner, {"kind": shape.kind, **model}), list[str]()
    for _ in path:
        ((name, inner),) = inner.items()
        found.append(name)
    return ".".join(["model"] * (first == "model") + found), inner


def data_options(task: str, values: Mapping[str, Any]) -> Any:
    """The `data` section as the task's dataclass."""
    options = find(task).options
    return options(**checked(options, section(task, "data", values), "data"))


def model_file(task: str, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model written down in YAML: the model's keywords, and perhaps a `training` section."""
    return model_parts(task, read_yaml(Path(path)), path)


def model_parts(task: str, loaded: dict[str, Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same from what such a file holds; `path` says where it stands."""
    training = loaded.pop("training", {})
    model = loaded.pop("model", loaded)
    if not isinstance(model, dict) or not isinstance(training, dict):
        raise SeqloomError(f"{path}: model and training are made of keys and values")
    name, base, shape = model.pop("preset", None), dict[str, Any](), find(task)
    if name is not None:
        base = preset(task, known(name, TASKS[task].PRESETS, "preset"), model.pop("size", "small"))
    return merge(base, by_current_names(shape.models, model, {"kind": shape.kind, **base})), training


def save(folder: Path, config: Mapping[str, Any]) -> None:
    write_atomic(folder / FILE, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))


def load(folder: Path) -> dict[str, Any]:
    """The config of a run folder; anything else gets a line that says what is missing."""
    with failing(folder, "read"):
        if not folder.exists():
            raise SeqloomError(f"{folder}: no such run")
        check_folder(folder)
        if (folder / ENSEMBLE).is_file():
            raise SeqloomError(f"{folder}: stands for several runs; name one of those in its {ENSEMBLE}")
        if not (folder / FILE).is_file():
            raise SeqloomError(f"{folder}: not a run folder: it has no {FILE}")
    config = read_yaml(folder / FILE)
    if not isinstance(config.get("format"), int):
        raise SeqloomError(f"{folder / FILE}: not the config of a run: it has no format number")
    if config["format"] > FORMAT:
        raise SeqloomError(
            f"{folder}: written by a newer Seqloom (format {config['format']}, this one reads up to {FORMAT}); "
            "upgrade seqloom"
        )
    config = _renewed(config, folder / FILE)
    check_config(config, folder / FILE)
    return config


def check_folder(folder: Path) -> None:
    """Refuse a run's folder whose files are links that lead out of it, or no files at all."""
    with failing(folder, "read"):
        check_own(folder, _ours(folder))


def _ours(folder: Path) -> Iterator[Path]:
    """What is ours in a run's folder, and all that is in the folders among it."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not OURS.fullmatch(path.name):
            continue
        yield path
        if path.name in ("checkpoints", "engines") and path.is_dir():  # it does not lead out, else we were not here
            yield from path.rglob("*")


def _renewed(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """A config of an earlier version as this one would have written it.

    Older classifiers have a setting `frozen`, for embeddings that stay as they are: `training.freeze: source`. Older
    runs did not look at what stands in their files before they read them. Before format 4 settings had other names.
    """
    model, training, data = (config.get(name) for name in ("model", "training", "data"))
    if isinstance(data, dict) and not data.keys() & {"recognise", "detect"}:
        data["detect"] = False
    if isinstance(model, dict) and model.pop("frozen", False) and isinstance(training, dict):
        training["freeze"] = ",".join(filter(None, (training.get("freeze"), "source")))
    if config["format"] >= NEW_NAMES or not is_whole(config["format"], 1) or config.get("task") not in [*TASKS]:
        return config
    task, found = config["task"], dict(config)
    try:
        if isinstance(data, dict):
            found["data"] = section(task, "data", data)
        if isinstance(training, dict):
            found["training"] = section(task, "training", training)
        if isinstance(model, dict):
            found["model"] = by_current_names(find(task).models, model)
    except SeqloomError as error:
        raise SeqloomError(f"{file}: {error}") from error
    return found | {"format": FORMAT}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Keys of a resumed run that differ from the saved config and may not: `section.key: old -> new`."""
    found, shape = [], find(new["task"])
    # An older run says nothing of a setting that came later, and was trained as if it had its default.
    usual = {"data": asdict(shape.options()), "training": asdict(Training())}
    old = {**old, "model": complete(shape.models, old["model"])}
    if old["preset"] != new["preset"]:  # all that follows from it is too much to say
        return [
            f"{key}: {old['preset'][key]} -> {value}"
            for key, value in new["preset"].items()
            if old["preset"][key] != value
        ]
    for section in SECTIONS:
        before, after = flat(usual.get(section, {}) | old[section]), flat(new[section])
        for key in sorted(before.keys() | after.keys()):
            allowed = section == "training" and key in EXTENDABLE
            if not allowed and before.get(key) != after.get(key):
                found.append(f"{section}.{key}: {before.get(key)} -> {after.get(key)}")
    return found
