"""Ensembles: which runs they are made of, whether these can predict together, and what reports say about them."""

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
from seqloom.tasks.registry import task as find

LENGTHS = ("ratio", "longest")  # how long targets get: bounds, which may differ
TRUNCATION = {"max_length": None, "truncate": "tail"}  # the defaults of how long texts are cut off


class Member(NamedTuple):
    """One run, read from its folder."""

    folder: Path
    config: dict[str, Any]
    vocabularies: dict[str, Any]
    model: nn.Module

    def facts(self) -> dict[str, Any]:
        """What reports show of a member."""
        count = sum(parameter.numel() for parameter in self.model.parameters())
        return {"run": str(self.folder), **self.config["preset"], "parameters": count}


def is_run(path: str | Path) -> bool:
    """Whether this is the folder of a run, or of several together."""
    return any((Path(path) / name).is_file() for name in (configs.FILE, configs.ENSEMBLE))


def save(folder: Path, members: Sequence[str]) -> None:
    """Make the folder stand for runs in it, or for others by their paths from it."""
    write_json(folder / configs.ENSEMBLE, {"members": list(members)})


def members_of(folder: Path) -> list[Path]:
    """The runs that a folder stands for: those that its ensemble.json names, else itself."""
    file = folder / configs.ENSEMBLE
    check_own(folder, [file])
    if not file.is_file():
        return [folder]
    names = read_json(file).get("members")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise SeqloomError(f'{file}: names its runs by their paths from there, as in {{"members": ["1", "2"]}}')
    if len(names) > MEMBERS:
        raise SeqloomError(f"{file}: names {len(names):,} runs; at most {MEMBERS:,} answer together")
    if odd := [name for name in names if not 0 < len(name) <= LONGEST_NAME or "\0" in name]:
        raise SeqloomError(f"{file}: {shown(odd[0])} is the path of no run")
    return [folder / name for name in names]


def check_once(folders: Sequence[Path]) -> None:
    """Refuse a run that is named twice, however its path is spelt."""
    if len(folders) > MEMBERS:
        raise SeqloomError(f"{len(folders):,} runs are named; at most {MEMBERS:,} answer together")
    found: set[Path] = set()
    for folder in folders:
        before = len(found)
        found.add(folder.resolve())
        if len(found) == before:
            raise SeqloomError(f"{folder}: is named twice; several runs answer together, each of them once")


def check_task(name: str, where: object) -> None:
    """Only some tasks have an ensemble."""
    if not hasattr(find(name), "ensemble"):
        able = ", ".join(one for one in TASKS if hasattr(find(one), "ensemble"))
        raise SeqloomError(f"{where}: is of the task {name}; several models answer together in {able}")


def combined(members: Sequence[Member]) -> tuple[dict[str, Any], nn.Module]:
    """The config and the model of several runs together; refused where they are not alike in all that meets the data.

    The config is the first one's, with the widest bounds on the length of targets, and lists the `members`.
    """
    first = members[0]
    check_task(first.config["task"], first.folder)
    for other in members[1:]:
        if difference := _difference(first, other):
            raise SeqloomError(f"{first.folder} and {other.folder} cannot answer together: {difference}")
    config = {
        **first.config,
        "decoding": _decoding([one.config.get("decoding") or {} for one in members]),
        "members": [one.facts() for one in members],
    }
    task: Any = find(config["task"])
    return config, task.ensemble([one.model for one in members], first.vocabularies)


def _difference(one: Member, other: Member) -> str | None:
    tasks = [member.config["task"] for member in (one, other)]
    if tasks[0] != tasks[1]:
        return f"the one is of the task {tasks[0]}, the other of {tasks[1]}"
    for name, stored in one.vocabularies.items():
        if unlike := _unlike(stored, other.vocabularies[name]):
            return (
                f"{name}.json differs ({unlike}); train both on the same data with the same tokens and with one "
                '--valid for both, such as a file or "5% with seed 7"'
            )
    cutting = [TRUNCATION | _only(member.config["data"], TRUNCATION) for member in (one, other)]
    if unlike := _unlike(*cutting):
        return f"they cut long texts in other ways ({unlike})"
    ruled = [_without(member.config.get("decoding") or {}, LENGTHS) for member in (one, other)]
    if unlike := _unlike(*ruled):
        return f"they decode by other rules ({unlike})"
    return None


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first difference, in words. What is missing in an older file counts as empty or false."""
    for key in dict.fromkeys((*one, *other)):
        left, right = one.get(key) or None, other.get(key) or None
        if left == right:
            continue
        if not (isinstance(left, list) and isinstance(right, list)):
            return key if isinstance(left, dict | list) else f"{key}: {left} and {right}"
        if len(left) != len(right):
            return f"{len(left):,} and {len(right):,} {key}"
        place = next(place for place, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
        return f"{key}, number {place + 1}: {left[place]!r} and {right[place]!r}"
    return None


def _decoding(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    bounds = {name: max(one[name] for one in several) for name in LENGTHS if name in several[0]}
    return {**several[0], **bounds}


def _only(values: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
