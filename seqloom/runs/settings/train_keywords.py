"""The keywords of `seqloom.train`: every setting of the data and of the training by its own name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from seqloom.data.files.columns import USER_FILE_OPTIONS
from seqloom.data.formats.python_data import write_examples
from seqloom.errors import SeqloomError, known
from seqloom.options import hints_of
from seqloom.runs.config import YAML
from seqloom.runs.config import section as by_current_names
from seqloom.runs.train.job import Files
from seqloom.runs.train.validation_split import parse_valid
from seqloom.setting_names import current_name, with_current_names
from seqloom.tasks.registry import TASKS, about
from seqloom.tasks.registry import task as get_task
from seqloom.training.settings import Training, parse_seconds

Examples = Files | Iterable[Any]  # names of files and datasets, or what `seqloom.data.formats.python_data` takes

# Names in other libraries, and ours.
OTHER_LIBRARIES = {
    "batch_size": "batch_rows",
    "lr": "learning_rate",
    "steps": "max_steps",
    "num_epochs": "epochs",
    "warmup_steps": "warmup",
    "gradient_clip": "clip",
    "num_train_epochs": "epochs",
}


class DataKeywords(TypedDict, total=False):
    """Of the config's `data` section; each task's options define which of them it has."""

    columns: str | None
    skip_bad: bool
    limit: int | None
    sample: int | None
    split_version: int
    header: bool | None
    delimiter: str | None
    encoding: str | None
    detect: bool
    lowercase: bool | str
    half_width: bool
    max_vocab: int | None
    min_count: int
    max_length: int | None
    truncate: str
    source_tokens: str
    target_tokens: str
    tokens: str
    target: str | int | None
    separator: str
    stop_words: str
    shorten_repeats: bool
    repair_tags: bool
    class_weights: str
    exclude: str | None
    column_types: dict[str, str]
    flag_missing: bool
    batches: str | None
    length: int
    stride: int | None
    vary_length: bool
    condition: bool
    mask_rate: float
    window: int
    negatives: int
    subsample: float


class TrainingKeywords(TypedDict, total=False):
    """Of the config's `training` section: see `seqloom.training.settings.Training`."""

    epochs: int | None
    max_steps: int | None
    time: float | str | None
    patience: int | None
    batch_rows: int | None
    batch_tokens: int | None
    accumulate: int
    objective: str | dict[str, Any]
    optimizer: str | dict[str, Any]
    learning_rate: float
    weight_decay: float
    momentum: float
    beta2: float
    asgd_patience: int
    schedule: str | dict[str, Any]
    warmup: int
    clip: float
    label_smoothing: float
    r_drop: float
    precision: str
    cuda_graphs: str
    compile: bool
    seed: int
    log_every: int
    valid_every: int | None
    valid_decode: int
    select: str
    save_every: int | None
    keep_checkpoints: int
    ema: float
    average_checkpoints: int
    vectors: str | None
    freeze: str | None
    shard: bool


class Keywords(DataKeywords, TrainingKeywords, total=False):
    """All that `seqloom.train` takes beside its own parameters."""


class Sections(NamedTuple):
    data: dict[str, Any]
    training: dict[str, Any]
    settings: dict[str, Any]  # by dotted names


def into_sections(
    task: str,
    options: Mapping[str, Any],
    data: Mapping[str, Any] | None,
    training: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None,
) -> Sections:
    """Keywords sorted into the sections; an unknown name is an error that suggests what was meant."""
    known(task, TASKS, "task")
    found = Sections(
        by_current_names(task, "data", _section(data, "data")),
        by_current_names(task, "training", _section(training, "training")),
        _section(settings, "settings"),
    )
    sections = {"data": hints_of(get_task(task).options), "training": hints_of(Training)}
    for name, value in with_current_names(
        "training", with_current_names("data", options, sections["data"]), sections["training"]
    ).items():
        homes = [section for section, names in sections.items() if name in names]
        if not homes:
            raise SeqloomError(_unknown_keyword(name, task, [*sections["data"], *sections["training"]]))
        if len(homes) > 1:
            raise SeqloomError(f"{name} is a setting of data and of training: give it in data={{…}} or training={{…}}")
        section: dict[str, Any] = getattr(found, homes[0])
        if section.get(name, value) != value:
            raise SeqloomError(f"{name} is given twice: {value!r}, and {section[name]!r} in {homes[0]}=")
        section[name] = value
    if isinstance(found.training.get("time"), str):
        found.training["time"] = parse_seconds(found.training["time"])
    return found


def store_examples(
    task: str,
    files: Examples,
    valid: Examples | float | None,
    test: Examples | None,
    sections: Sections,
    cache: Path | None,
) -> tuple[list[str], Files | float | None, list[str] | None]:
    """The names of the training, validation and test files. Examples given in Python are written to the cache first."""
    dotted = {key.removeprefix("data."): value for key, value in sections.settings.items() if key.startswith("data.")}
    settings = {**sections.data, **by_current_names(task, "data", dotted)}
    form = about(task).examples
    unlimited = {**settings, "limit": None}
    train_files, written = write_examples(files, form, settings, cache)
    forms = {written}  # True: examples that were written, False: files of the user's
    if valid is None or isinstance(valid, int | float | str | Path):
        valid_files = valid
        forms |= {False} if valid is not None and isinstance(parse_valid(valid), list) else set()
    else:
        valid_files, valid_written = write_examples(valid, form, unlimited, cache, "valid")
        forms.add(valid_written)
    test_files, test_written = (None, written) if test is None else write_examples(test, form, unlimited, cache, "test")
    forms.add(test_written)
    # Columns and header of a table are settings of its examples too.
    of_files = [
        name for name in ("columns", *USER_FILE_OPTIONS) if form != "table" or name not in ("columns", "header")
    ]
    for name in of_files if True in forms else ():
        if False in forms and settings.get(name) is not None:
            raise SeqloomError(f"{name}= cannot be for files and for examples at once: give all in the same form")
        sections.data.pop(name, None)  # written examples always have the same columns and format
        sections.settings.pop(f"data.{name}", None)
    return train_files, valid_files, test_files


def _section(values: Any, name: str) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise SeqloomError(f"{name}= takes a dictionary of settings, here {type(values).__name__}")
    return dict(values)


def _unknown_keyword(name: str, task: str, names: list[str]) -> str:
    """The message for an unknown keyword, with what was probably meant, or the tasks that have such a setting."""
    own = ("valid", "model", "size", "data", "training", "settings", "start", "device", "resume", "cache", "quiet")
    near = [OTHER_LIBRARIES[name]] if name in OTHER_LIBRARIES else difflib.get_close_matches(name, [*names, *own], 1)
    fields = {other: hints_of(get_task(other).options) for other in TASKS if other != task}
    others = [other for other, names in fields.items() if current_name("data", name, names) in names]
    whose = f", which is a setting of {' and '.join(others)}" if others else ""
    hint = f"; did you mean {near[0]!r}?" if near else f". Choose from: {', '.join(sorted(names))}"
    parts = "; parts of the model go by settings={'decoder.score': …}" if "." in name else ""
    return f"unknown keyword of seqloom.train for {task} {name!r}{whose}{parts or hint}"


def checked_model(model: Any) -> str | Mapping[str, Any] | None:
    """`model` as the name of a preset, a YAML file or the content of such a file; anything else is refused."""
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, Mapping):
        return dict(model)
    if hasattr(model, "__fspath__"):
        name = str(model)
        if not name.endswith(YAML):
            raise SeqloomError(f"model={name!r}: a file with a model ends in {' or '.join(YAML)}")
        return name
    hint = ""
    if any(base.__module__.startswith("torch.nn") for base in getattr(model, "__mro__", type(model).__mro__)):
        hint = "; a module of your own is no preset: see CONTRIBUTING.md for how to add a part by name"
    given_type = type(model).__name__
    raise SeqloomError(
        f"model= takes the name of a preset, a YAML file or a dictionary of settings, here {given_type}{hint}"
    )
