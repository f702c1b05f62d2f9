"""Load the model of a run folder, or several as an ensemble."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqloom.build import build, complete
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.runs import config as configs
from seqloom.runs.folder.ensembles import Member, check_once, combine_members, members_of
from seqloom.runs.folder.environment import choose_device
from seqloom.runs.folder.folder_checks import ModelSizeLimit, check_sections
from seqloom.safety import content_errors, system_errors
from seqloom.tasks.registry import task
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Model
from seqloom.training.checkpoint import load_weights, read_tensors

MODEL = "model.safetensors"
# Sections that the config of a run must have to be resumed or started from.
REQUIRED_SECTIONS = ("task", "preset", "data", "model", "training", "inputs")
ENGINE = "engine.json"  # in the folder of a run that was exported for another library


@system_errors("the run")
def load(run: str | Path, *more: str | Path, device: str | None = None, engine: str | None = None) -> Model:
    """The best model of a run folder, as its task's runner: a Translator, …; all have `predict` and `evaluate`.

    Several runs of one task with the same vocabularies are an ensemble, by the mean of their probabilities; so is a
    folder with an ensemble.json. The last argument may be the device: `load(run, "cpu")`. `engine`: torch, or for
    translate onnx or ct2; an exported folder has its own.
    """
    runs = [run, *more]
    if device is None:
        device = str(runs.pop()) if more and re.fullmatch(r"auto|cpu|cuda(:.*)?", str(runs[-1])) else "auto"
    folders = [folder for path in runs for folder in members_of(Path(path))]
    check_once(folders)
    if engine not in (None, "torch") or (folders[0] / ENGINE).is_file():
        from seqloom.runs.interop.engines import load_engine

        if len(folders) > 1:
            raise SeqloomError("several runs answer together by torch alone; leave --engine and exported folders out")
        if device not in ("auto", "cpu"):
            raise SeqloomError(f"the engines other than torch compute on the CPU here, not on {device!r}")
        return load_engine(folders[0], engine)  # pyright: ignore[reportReturnType]
    if len(folders) == 1:
        return load_one(folders[0], device)
    members = [_load_member(folder, device) for folder in folders]
    config, model = combine_members(members)
    ensemble = LoadedRun(Path(runs[0]), config, model.eval(), members[0].vocabularies, choose_device(device))
    return task(config["task"]).runner(ensemble)  # pyright: ignore[reportReturnType]


@system_errors("the run")
def load_one(run: str | Path, device: str = "auto") -> Any:
    """As `load`, for a single run with torch."""
    member = _load_member(Path(run), device)
    loaded = LoadedRun(member.folder, member.config, member.model, member.vocabularies, choose_device(device))
    with content_errors(member.folder):
        return task(member.config["task"]).runner(loaded)


def stored_config(folder: Path) -> dict[str, Any]:
    """The config of a run that is resumed or started from, checked to be complete."""
    config = configs.load(folder)
    check_sections(config, folder / configs.FILE, REQUIRED_SECTIONS)
    with content_errors(folder / configs.FILE):
        complete(task(config["task"]).models, config["model"])
    return config


def stored_vocabularies(home: Path) -> dict[str, Any]:
    """The vocabularies of a run, checked."""
    config = configs.load(home)
    stored = read_vocabularies(home, config)
    with content_errors(home):
        task(config["task"]).sizes(stored)
    return stored


def _load_member(folder: Path, device: str) -> Member:
    config = configs.load(folder)
    check_sections(config, folder / configs.FILE)
    if (folder / ENGINE).is_file():
        raise SeqloomError(
            f"{folder}: was exported to predict, by itself; for anything else name the run it was made of"
        )
    torch_device, definition = choose_device(device), task(config["task"])
    stored = read_vocabularies(folder, config)
    if not (folder / MODEL).exists():
        raise SeqloomError(f"{folder}: has no model yet: its training stopped before the first validation; --resume it")
    with content_errors(folder):
        sizes = definition.sizes(stored)
    with content_errors(folder / configs.FILE):
        complete(definition.models, config["model"])  # checks types and bounds
        with ModelSizeLimit(folder / MODEL):
            model = build(definition.models, config["model"], **sizes)
    load_weights(model, read_tensors(folder / MODEL), folder / MODEL)
    return Member(folder, config, stored, model.to(torch_device).eval())


def read_vocabularies(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The vocabularies of a run by name, as JSON."""
    return {name: read_json(folder / f"{name}.json") for name in task(config["task"]).vocabularies}
