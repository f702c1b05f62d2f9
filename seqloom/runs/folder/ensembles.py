"""Ensembles: their members, and whether these can predict together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from seqloom.documents import read_json
from seqloom.errors import SeqloomError, shown
from seqloom.files import write_json
from seqloom.runs import config as configs
from seqloom.runs.folder.folder_checks import LONGEST_NAME
from seqloom.runs.recipes.recipe import MEMBERS
from seqloom.safety import check_own
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task

LENGTH_BOUNDS = ("ratio", "longest")  # of targets, which may differ between members
TRUNCATION = {"max_length": None, "truncate": "tail"}  # settings and their defaults


class Member(NamedTuple):
    """A run that was read from its folder."""

    folder: Path
    config: dict[str, Any]
    vocabularies: dict[str, Any]
    model: nn.Module

    def facts(self) -> dict[str, Any]:
        """The facts of a member that reports show."""
        count = sum(parameter.numel() for parameter in self.model.parameters())
        return {"run": str(self.folder), **self.config["preset"], "parameters": count}


def is_run(path: str | Path) -> bool:
    """Whether this is the folder of a run or of an ensemble."""
    return any((Path(path) / name).is_file() for name in (configs.FILE, configs.ENSEMBLE))


def save(folder: Path, members: Sequence[str]) -> None:
    """Write ensemble.json: the members are runs in the folder, or others by their paths from it."""
    write_json(folder / configs.ENSEMBLE, {"members": list(members)})


def members_of(folder: Path) -> list[Path]:
    """The runs that the folder's ensemble.json names; else the folder itself."""
    file = folder / configs.ENSEMBLE
    check_own(folder, [file])
    if not file.is_file():
        return [folder]
    names = read_json(file).get("members")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise SeqloomError(f'{file}: names its runs by their paths from there, as in {{"members": ["1", "2"]}}')
    if len(names) > MEMBERS:
        raise SeqloomError(f"{file}: names {len(names):,} runs; at most {MEMBERS:,} answer together")
    if wrong := [name for name in names if not 0 < len(name) <= LONGEST_NAME or "\0" in name]:
        raise SeqloomError(f"{file}: {shown(wrong[0])} is the path of no run")
    return [folder / name for name in names]


def check_once(folders: Sequence[Path]) -> None:
    """Refuse a run that is named twice, however its path is spelt."""
    if len(folders) > MEMBERS:
        raise SeqloomError(f"{len(folders):,} runs are named; at most {MEMBERS:,} answer together")
    seen: set[Path] = set()
    for folder in folders:
        path = folder.resolve()
        if path in seen:
            raise SeqloomError(f"{folder}: is named twice; several runs answer together, each of them once")
        seen.add(path)


def check_task(name: str, where: object) -> None:
    """Refuse a task without ensembles."""
    if not get_task(name).can_ensemble:
        supported = ", ".join(task for task in TASKS if get_task(task).can_ensemble)
        raise SeqloomError(f"{where}: is of the task {name}; several models answer together in {supported}")


def combine_members(members: Sequence[Member]) -> tuple[dict[str, Any], nn.Module]:
    """The config and the model of an ensemble; refused unless the members encode and decode texts in the same way.

    The config is that of the first member, with the widest bounds on the length of targets and the `members`.
    """
    first = members[0]
    check_task(first.config["task"], first.folder)
    for other in members[1:]:
        if difference := _difference(first, other):
            raise SeqloomError(f"{first.folder} and {other.folder} cannot answer together: {difference}")
    decodings = [member.config.get("decoding") or {} for member in members]
    bounds = {name: max(decoding[name] for decoding in decodings) for name in LENGTH_BOUNDS if name in decodings[0]}
    config = {
        **first.config,
        "decoding": {**decodings[0], **bounds},
        "members": [member.facts() for member in members],
    }
    task: Any = get_task(config["task"])
    return config, task.ensemble([member.model for member in members], first.vocabularies)


def _difference(one: Member, other: Member) -> str | None:
    tasks = [member.config["task"] for member in (one, other)]
    if tasks[0] != tasks[1]:
        return f"the one is of the task {tasks[0]}, the other of {tasks[1]}"
    for name, stored in one.vocabularies.items():
        if difference := _first_difference(stored, other.vocabularies[name]):
            return (
                f"{name}.json differs ({difference}); train both on the same data with the same tokens and with one "
                '--valid for both, such as a file or "5% with seed 7"'
            )
    truncation = [
        {name: member.config["data"].get(name, default) for name, default in TRUNCATION.items()}
        for member in (one, other)
    ]
    if difference := _first_difference(*truncation):
        return f"they cut long texts in other ways ({difference})"
    rules = [
        {name: v for name, v in (member.config.get("decoding") or {}).items() if name not in LENGTH_BOUNDS}
        for member in (one, other)
    ]
    if difference := _first_difference(*rules):
        return f"they decode by other rules ({difference})"
    return None


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first difference, in words. A value that an older file does not have counts as empty or false."""
    for key in dict.fromkeys((*one, *other)):
        left, right = one.get(key) or None, other.get(key) or None
        if left == right:
            continue
        if not (isinstance(left, list) and isinstance(right, list)):
            return key if isinstance(left, dict | list) else f"{key}: {left} and {right}"
        if len(left) != len(right):
            return f"{len(left):,} and {len(right):,} {key}"
        index = next(index for index, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
        return f"{key}, number {index + 1}: {left[index]!r} and {right[index]!r}"
    return None
