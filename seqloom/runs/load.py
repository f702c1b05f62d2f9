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
from seqloom.runs.folder.ensembles import Member, check_once, combined, members_of
from seqloom.runs.folder.environment import choose_device
from seqloom.runs.folder.folder_checks import Allowance, check_whole
from seqloom.safety import named, understood
from seqloom.tasks.registry import task
from seqloom.tasks.shared.predict import LoadedRun
from seqloom.tasks.shared.task import Model
from seqloom.training.checkpoint import load_weights, read_tensors

MODEL = "model.safetensors"
NEEDED = ("task", "preset", "data", "model", "training", "inputs")  # of a run that goes on, or that one starts from
ENGINE = "engine.json"  # in the folder of a run that was exported for another library


@named("the run")
def load(run: str | Path, *more: str | Path, device: str | None = None, engine: str | None = None) -> Model:
    """The best model of a run folder, as its task's runner: a Translator, …; all have `predict` and `evaluate`.

    Several runs of one task with the same vocabularies predict together, by the mean of their probabilities; a folder
    with an ensemble.json stands for the runs that it names. The last may name the device instead: `load(run, "cpu")`.
    `engine` is what computes: torch, or for translate onnx or ct2; an exported folder has its own.
    """
    runs = [run, *more]
    if device is None:
        device = str(runs.pop()) if more and re.fullmatch(r"auto|cpu|cuda(:.*)?", str(runs[-1])) else "auto"
    folders = [folder for one in runs for folder in members_of(Path(one))]
    check_once(folders)
    if engine not in (None, "torch") or (folders[0] / ENGINE).is_file():
        return _by_engine(folders, device, engine)
    if len(folders) == 1:
        return load_one(folders[0], device)
    members = [_member(folder, device) for folder in folders]
    config, model = combined(members)
    several = LoadedRun(Path(runs[0]), config, model.eval(), members[0].vocabularies, choose_device(device))
    runner: Any = task(config["task"]).runner(several)
    return runner


@named("the run")
def load_one(run: str | Path, device: str = "auto") -> Any:
    """As `load`, for what needs a model of its own: several together are refused."""
    one = _member(Path(run), device)
    loaded = LoadedRun(one.folder, one.config, one.model, one.vocabularies, choose_device(device))
    with understood(one.folder):
        return task(one.config["task"]).runner(loaded)


def stored_config(folder: Path) -> dict[str, Any]:
    """The config of a run that is resumed or started from: checked to be complete, with a model that exists."""
    config = configs.load(folder)
    check_whole(config, folder / configs.FILE, NEEDED)
    with understood(folder / configs.FILE):
        complete(task(config["task"]).models, config["model"])
    return config


def stored_vocabularies(home: Path) -> dict[str, Any]:
    """The vocabularies of a run, checked before data are encoded with them."""
    config = configs.load(home)
    stored = vocabularies(home, config)
    with understood(home):
        task(config["task"]).sizes(stored)
    return stored


def _by_engine(folders: list[Path], device: str, engine: str | None) -> Any:
    from seqloom.runs.interop.engines import load_engine

    if len(folders) > 1:
        raise SeqloomError("several runs answer together by torch alone; leave --engine and exported folders out")
    if device not in ("auto", "cpu"):
        raise SeqloomError(f"the engines other than torch compute on the CPU here, not on {device!r}")
    return load_engine(folders[0], engine)


def _member(folder: Path, device: str) -> Member:
    config = configs.load(folder)
    check_whole(config, folder / configs.FILE)
    if (folder / ENGINE).is_file():
        raise SeqloomError(
            f"{folder}: was exported to predict, by itself; for anything else name the run it was made of"
        )
    place, shape = choose_device(device), task(config["task"])
    stored = vocabularies(folder, config)
    if not (folder / MODEL).exists():
        raise SeqloomError(f"{folder}: has no model yet: its training stopped before the first validation; --resume it")
    with understood(folder):
        sizes = shape.sizes(stored)
    with understood(folder / configs.FILE):
        complete(shape.models, config["model"])  # its types and bounds
        with Allowance(folder / MODEL):
            model = build(shape.models, config["model"], **sizes)
    load_weights(model, read_tensors(folder / MODEL), folder / MODEL)
    return Member(folder, config, stored, model.to(place).eval())


def vocabularies(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run keeps of its data beside the weights, by name."""
    return {name: read_json(folder / f"{name}.json") for name in task(config["task"]).vocabularies}
