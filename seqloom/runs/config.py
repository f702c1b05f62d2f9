"""A run's config: complete, so that nothing about a run is hidden in a default.

Sections: `format`, `seqloom` (its version), `task`, `preset`, `data` (how text is encoded), `model`, `training`,
`decoding` (bounds on the length of targets), `inputs` (the files) and `plugins` (parts of other packages), if any.
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

from seqloom.build import build, by_current_names, complete, set_by_path
from seqloom.build import settings as keywords
from seqloom.documents import read_yaml
from seqloom.errors import SeqloomError, known, setting_errors
from seqloom.files import write_atomic
from seqloom.options import checked, flattened, hints_of, without_none
from seqloom.runs import plugins_used
from seqloom.runs.folder.folder_checks import check_config, is_count
from seqloom.runs.settings.complete_training import complete_training
from seqloom.safety import check_own, file_errors
from seqloom.setting_names import check_equal, current_name, with_current_names
from seqloom.tasks.presets import default_model, merge, preset, presets_of, suited
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task
from seqloom.tasks.shared.task import Task
from seqloom.training.settings import Training
from seqloom.version import FORMAT, __version__

FILE = "config.yaml"
ENSEMBLE = "ensemble.json"  # in place of a config, in the folder of an ensemble
SECTIONS = ("data", "model", "training")
NEW_NAMES = 4  # the format since which settings have their current names
BATCH = ("batch_rows", "batch_tokens")
YAML = (".yaml", ".yml")
# Names that Seqloom reads, writes or deletes in a run folder; everything else in it is the user's own.
OWN_FILES = re.compile(
    r"\.lock|\..*\.(tmp|old)|.*\.(json|yaml|safetensors)|metrics\.jsonl|report\.html|README\.md"
    r"|checkpoints|engines|(fold-)?[0-9]+"
)
# Settings that a resumed run may change.
EXTENDABLE = ("epochs", "max_steps", "time", "patience")
EXTENDABLE += ("log_every", "keep_checkpoints", "average_checkpoints", "shard")


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
    return compose_with_batch_choice(task, model, size, data, training, settings, saved)[0]


@setting_errors()
def compose_with_batch_choice(
    task: str,
    model: str | Mapping[str, Any] | None,
    size: str | None,
    data: Mapping[str, Any],
    training: Mapping[str, Any],
    settings: Mapping[str, Any],
    saved: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], bool]:
    """`compose`, and whether the user chose the batch size; if not, it is chosen by the size of the data."""
    given_model = None if model is None or isinstance(model, str) else dict(model)
    definition = get_task(task)
    own: dict[str, Any] = {"data": without_none(section(task, "data", data)), "model": {}, "training": {}}
    if saved is not None:
        own = {name: merge(saved[name], own[name]) for name in SECTIONS}
    named = {"model": default_model(task), "size": "small"} if saved is None else saved["preset"]
    model_name = model if given_model is None else _content_name(given_model)
    chosen = {**named, **without_none({"model": model_name, "size": size})}
    if size is not None and chosen["model"].endswith(YAML):
        source = chosen["model"] if given_model is None else "the dictionary"
        raise SeqloomError(f"--size goes with the name of a preset; {source} says its own sizes")
    if saved is None or chosen != named:
        own["model"], own["training"] = _base_model(task, chosen, own["training"], given_model)
    own["training"].update(without_none(section(task, "training", training)))
    _apply_settings(own, settings, definition)
    model_config = complete(definition.models, {"kind": definition.kind, **own["model"]})
    defaults = {**definition.training, **suited(task, own["model"])}
    if any(own["training"].get(name) for name in BATCH):  # one replaces the other: a batch is rows or tokens
        defaults = {name: value for name, value in defaults.items() if name not in BATCH}
    complete_section = complete_training(definition.family, own["training"], defaults)
    known(complete_section["select"], definition.scores, f"score to select by in {task}")
    config = {
        "format": FORMAT,
        "seqloom": __version__,
        "task": task,
        "preset": chosen,
        "data": asdict(data_options(task, own["data"])),
        "model": model_config,
        "training": complete_section,
    }
    return config, any(own["training"].get(name) for name in BATCH)


def build_model(config: Mapping[str, Any], sizes: Mapping[str, Any]) -> nn.Module:
    """The model of a config. An error of a part, such as a width that the heads do not divide, is a SettingError."""
    with setting_errors():
        return build(get_task(config["task"]).models, config["model"], **sizes)


def _base_model(
    task: str, chosen: Mapping[str, str], training: dict[str, Any], given_model: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's keywords from a preset, a YAML file or a dictionary, and `training` with those of the file."""
    if not chosen["model"].endswith(YAML):
        return preset(task, chosen["model"], chosen["size"]), training
    if given_model is None:
        parts, more = model_file(task, chosen["model"])
    else:
        parts, more = model_parts(task, copy.deepcopy(given_model), "model=")
    return parts, {**training, **section(task, "training", more)}


def _content_name(model: Mapping[str, Any]) -> str:
    """A name by content for a model that was given as a dictionary."""
    try:
        content = json.dumps(model, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SeqloomError(f"model= takes a dictionary of names, numbers and texts: {error}") from error
    return f"given-{hashlib.sha256(content.encode()).hexdigest()[:12]}{YAML[0]}"


def _section_and_key(own: dict[str, Any], key: str, definition: Task) -> tuple[dict[str, Any], str]:
    """The section that a `--set` key belongs to: `training.x`, `data.x`, `model.x`; any other is a part of the model,
    and the key within it."""
    first, _, rest = key.partition(".")
    if first in SECTIONS:
        if not rest:
            raise SeqloomError(f"cannot set {key!r}: name a setting of {first}, as in training.clip=1.0")
        return own[first], rest
    kind = own["model"].get("kind", definition.kind)
    make = definition.models.get(kind) if isinstance(kind, str) else None
    if callable(make):  # an unknown kind is an error later, when the model is completed
        names = {"kind", *SECTIONS, *keywords(make)}
        for name, options in (("training", Training), ("data", definition.options)):
            if first not in names and current_name(name, first, hints_of(options)) in hints_of(options):
                raise SeqloomError(f"unknown setting {key!r}; did you mean '{name}.{key}'?")
        known(first, names, "setting")
    return own["model"], key


def section(task: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The section `data` or `training` of a task, by the current names of its settings."""
    options = get_task(task).options if name == "data" else Training
    return with_current_names(name, values, hints_of(options), f"{name}.")


def _apply_settings(own: dict[str, Any], settings: Mapping[str, Any], definition: Task) -> None:
    """Set the `--set` keys in their order: one may choose the part whose settings the next ones name."""
    given: dict[str, tuple[str, Any]] = {}
    for key, value in settings.items():
        new, value = _with_current_names(key, value, own["model"], definition)
        if new in given:
            check_equal(given[new][0], key, given[new][1] == value, new)
        given[new] = key, value
        set_by_path(*_section_and_key(own, new, definition), value)


def _with_current_names(key: str, value: Any, model: Mapping[str, Any], definition: Task) -> tuple[str, Any]:
    """A `--set` key and its value by current names."""
    first, _, rest = key.partition(".")
    if first in SECTIONS and not rest:
        return key, value
    if first in ("data", "training"):
        name, dot, more = rest.partition(".")
        ((name, value),) = section(definition.name, first, {name: value}).items()
        return f"{first}.{name}{dot}{more}", value
    path = (rest if first == "model" else key).split(".")
    inner: Any = value
    for name in reversed(path):
        inner = {name: inner}
    inner = by_current_names(definition.models, inner, {"kind": definition.kind, **model})
    names: list[str] = []
    for _ in path:
        ((name, inner),) = inner.items()
        names.append(name)
    return ".".join(["model"] * (first == "model") + names), inner


def data_options(task: str, values: Mapping[str, Any]) -> Any:
    """The `data` section as the task's dataclass."""
    options = get_task(task).options
    return options(**checked(options, section(task, "data", values), "data"))


def model_file(task: str, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A YAML file with a model: the model's keywords, and perhaps a `training` section."""
    return model_parts(task, read_yaml(Path(path)), path)


def model_parts(task: str, loaded: dict[str, Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same from the content of such a file; `path` is for errors."""
    training = loaded.pop("training", {})
    model = loaded.pop("model", loaded)
    if not isinstance(model, dict) or not isinstance(training, dict):
        raise SeqloomError(f"{path}: model and training are made of keys and values")
    name, base, definition = model.pop("preset", None), dict[str, Any](), get_task(task)
    if name is not None:
        base = preset(task, known(name, presets_of(task).PRESETS, "preset"), model.pop("size", "small"))
    return merge(base, by_current_names(definition.models, model, {"kind": definition.kind, **base})), training


def save(folder: Path, config: Mapping[str, Any]) -> None:
    content = plugins_used.recorded(config)
    write_atomic(folder / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def load(folder: Path) -> dict[str, Any]:
    """The config of a run folder; for anything else an error that says what is missing."""
    with file_errors(folder, "read"):
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
    plugins_used.check(config, folder / FILE)
    config = _migrated(config, folder / FILE)
    check_config(config, folder / FILE)
    return config


def check_folder(folder: Path) -> None:
    """Refuse a run folder with links that lead out of it, devices or FIFOs in place of its files."""
    with file_errors(folder, "read"):
        check_own(folder, _own_files(folder))


def _own_files(folder: Path) -> Iterator[Path]:
    """Seqloom's files and folders in a run folder, and everything in those folders."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not OWN_FILES.fullmatch(path.name):
            continue
        yield path
        if path.name in ("checkpoints", "engines") and path.is_dir():  # checked by now: it does not lead out
            yield from path.rglob("*")


def _migrated(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """A config of an earlier version in the form of this one.

    `frozen` of older classifiers is `training.freeze: source`. Older runs did not detect the format of their files.
    Before format 4 settings had other names.
    """
    model, training, data = (config.get(name) for name in ("model", "training", "data"))
    if isinstance(data, dict) and not data.keys() & {"recognise", "detect"}:
        data["detect"] = False
    if isinstance(model, dict) and model.pop("frozen", False) and isinstance(training, dict):
        training["freeze"] = ",".join(filter(None, (training.get("freeze"), "source")))
    if config["format"] >= NEW_NAMES or not is_count(config["format"], 1) or config.get("task") not in [*TASKS]:
        return config
    task, migrated = config["task"], dict(config)
    try:
        if isinstance(data, dict):
            migrated["data"] = section(task, "data", data)
        if isinstance(training, dict):
            migrated["training"] = section(task, "training", training)
        if isinstance(model, dict):
            migrated["model"] = by_current_names(get_task(task).models, model)
    except SeqloomError as error:
        raise SeqloomError(f"{file}: {error}") from error
    return migrated | {"format": FORMAT}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Settings of a resumed run that differ from the saved config and may not: `section.key: old -> new`."""
    changes, definition = [], get_task(new["task"])
    # A setting that an older run does not have was at its default.
    defaults = {"data": asdict(definition.options()), "training": asdict(Training())}
    old = {**old, "model": complete(definition.models, old["model"])}
    if old["preset"] != new["preset"]:  # without all the settings that follow from it
        return [
            f"{key}: {old['preset'][key]} -> {value}"
            for key, value in new["preset"].items()
            if old["preset"][key] != value
        ]
    for section in SECTIONS:
        before, after = flattened(defaults.get(section, {}) | old[section]), flattened(new[section])
        for key in sorted(before.keys() | after.keys()):
            allowed = section == "training" and key in EXTENDABLE
            if not allowed and before.get(key) != after.get(key):
                changes.append(f"{section}.{key}: {before.get(key)} -> {after.get(key)}")
    return changes
