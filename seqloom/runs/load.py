"""A run folder becomes a model again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqloom.errors import SeqloomError
from seqloom.files import read_json
from seqloom.parts.choose import build
from seqloom.runs import config as configs
from seqloom.runs.environment import choose_device
from seqloom.tasks.known import task
from seqloom.training.checkpoint import load_weights, read_tensors

MODEL = "model.safetensors"


def load(run: str | Path, device: str = "auto") -> Any:
    """The best model of a run folder, as its task's runner: a Translator, …"""
    folder = Path(run)
    config = configs.load(folder)
    place, shape = choose_device(device), task(config["task"])
    stored = vocabularies(folder, config)
    model = build(shape.models, config["model"], **shape.sizes(stored))
    if not (folder / MODEL).exists():
        raise SeqloomError(f"{folder}: has no model yet: its training stopped before the first validation; --resume it")
    load_weights(model, read_tensors(folder / MODEL), folder / MODEL)
    return shape.runner(folder, config, model.to(place).eval(), stored, place)


def vocabularies(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run keeps of its data beside the weights, by name."""
    return {name: read_json(folder / f"{name}.json") for name in task(config["task"]).vocabularies}
