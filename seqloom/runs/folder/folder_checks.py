"""Checks of the files in a run folder before they are used: the folder may come from a stranger."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch.overrides import TorchFunctionMode

from seqloom.errors import SeqloomError, known, shown
from seqloom.options import checked, hints_of
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task
from seqloom.training.settings import Training

SECTIONS = ("data", "model", "training", "preset", "inputs", "decoding")
LONGEST_NAME = 4096
LARGEST_COUNT = 10**9
Rule = tuple[Callable[[Any], bool], str]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME and "\0" not in value


def is_count(value: Any, least: int = 0) -> bool:
    """Whether this is a whole number of `least` or more."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_COUNT


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_POSITIVE: Rule = (lambda value: is_count(value, 1), "a whole number of 1 or more")
_NAME: Rule = (_is_name, "a name")
# Values that every task's config may have, and what they must be.
RULES: dict[str, Rule] = {
    "preset.model": _NAME,
    "preset.size": (lambda value: value is None or _is_name(value), "a name"),
    "inputs.train": (_names, "a list of names"),
    "inputs.valid": (
        lambda value: value is None or is_number(value) or _is_name(value) or _names(value),
        "a share, a name or a list of names",
    ),
    "inputs.from": _NAME,
    "inputs.taken": (_names, "a list of names"),
    "decoding.ratio": (lambda value: is_number(value) and value >= 0, "a number of 0 or more"),
    "decoding.longest": (is_count, "a whole number"),
    "decoding.room": _POSITIVE,
    "decoding.limit": (lambda value: value is None or is_count(value, 1), "a whole number of 1 or more"),
    "decoding.first": (lambda value: value is None or is_count(value), "a token's number"),
    "decoding.close": (lambda value: isinstance(value, bool), "true or false"),
    "decoding.never": (
        lambda value: isinstance(value, Sequence) and not isinstance(value, str) and all(map(is_count, value)),
        "a list of tokens' numbers",
    ),
}


def check_config(config: Mapping[str, Any], file: Path) -> None:
    """Refuse a config whose sections or values have the wrong type."""
    try:
        if not is_count(config["format"], 1):
            raise SeqloomError(f"format must be a whole number of 1 or more, here {shown(config['format'])}")
        if "task" in config:
            if not isinstance(config["task"], str):
                raise SeqloomError(f"task must be one of {', '.join(TASKS)}, here {shown(config['task'])}")
            known(config["task"], TASKS, "task")
        for name in SECTIONS:
            if not isinstance(config.get(name, {}), dict):
                raise SeqloomError(f"{name} must be keys and values, here {shown(config[name])}")
        for key, (is_valid, what) in RULES.items():
            section, _, name = key.partition(".")
            values = config.get(section, {})
            if name in values and not is_valid(values[name]):
                raise SeqloomError(f"{key} must be {what}, here {shown(values[name])}")
        if "task" in config:
            for name, make in (("data", get_task(config["task"]).options), ("training", Training)):
                hints = hints_of(make)
                values = {key: value for key, value in config.get(name, {}).items() if key in hints}
                make(**checked(make, values, name))  # checks types and bounds
    except SeqloomError as error:
        raise SeqloomError(f"{file}: {error}") from error


def check_sections(config: Mapping[str, Any], file: Path, names: Sequence[str] = ("task", *SECTIONS[:2])) -> None:
    """Refuse a config without one of the sections `names`."""
    for name in names:
        if name not in config:
            raise SeqloomError(f"{file}: {name} is missing")
    if "preset" in names and not config["preset"].keys() >= {"model", "size"}:
        raise SeqloomError(f"{file}: preset names a model and its size, here {shown(config['preset'])}")


def check_state(values: Mapping[str, Any], where: Path) -> None:
    """Refuse a checkpoint with values of the wrong type."""
    best = values.get("best")
    valid: dict[str, bool] = {
        name: is_count(values.get(name)) for name in ("step", "epoch", "position", "worse", "validated", "averaged")
    }
    journal = values.get("journal")
    valid["journal"] = isinstance(journal, int) and journal >= 0
    valid["elapsed"] = is_number(values.get("elapsed"))
    valid["processes"] = is_count(values.get("processes", 1), 1)
    valid["fingerprint"] = isinstance(values.get("fingerprint"), str)
    valid["best"] = best is None or (
        isinstance(best, dict)
        and is_count(best.get("step"))
        and isinstance(best.get("scores"), dict)
        and all(isinstance(score, int | float) for score in best["scores"].values())
    )
    for name, is_valid in valid.items():
        if not is_valid:
            raise SeqloomError(f"{where}: {name} cannot be {shown(values.get(name))}")


SLACK = 1 << 22  # numbers that a model may hold beside its weights: tables of positions, masks
REUSE = 4  # how often a tied matrix may be created before it is shared
ALLOCATING = {getattr(torch, name) for name in ("empty", "zeros", "ones", "rand", "randn", "full", "eye")}


class ModelSizeLimit(TorchFunctionMode):
    """Limits the memory of a model built from an untrusted config to what its weights need."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.left = file, SLACK
        if file.is_file():
            try:
                with safetensors.safe_open(file, framework="pt") as stored:
                    shapes = [stored.get_slice(name).get_shape() for name in stored.keys()]  # noqa: SIM118
            except (OSError, safetensors.SafetensorError):
                shapes = []  # an error when the file is read
            self.left += REUSE * sum(math.prod(shape) for shape in shapes)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ALLOCATING:
            sizes = args[0] if len(args) == 1 or func is torch.full else args
            sizes = sizes if isinstance(sizes, Sequence) else [sizes] if len(args) == 1 else args
            self.left -= math.prod(size for size in sizes if isinstance(size, int))
            if self.left < 0:
                raise SeqloomError(f"{self.file}: does not fit the model of config.yaml, which is larger")
        return func(*args, **(kwargs or {}))


def model_size_limit(folder: Path, config: Mapping[str, Any], name: str) -> AbstractContextManager[Any]:
    """A block in which a model that is resumed, or starts from another run, may not be larger than the weights."""
    start = config["inputs"].get("from")
    files = [folder / name] if start is None or "taken" in config["inputs"] else [folder / name, Path(start) / name]
    return next((ModelSizeLimit(file) for file in files if file.is_file()), nullcontext())
