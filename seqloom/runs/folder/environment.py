"""Versions and hardware, and the choice of the device."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from seqloom.errors import SettingError, known, setting_errors
from seqloom.version import __version__

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "rapidfuzz", "typer", "rich", "matplotlib")


def environment() -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "seqloom": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": versions,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def choose_device(name: str, local: int | None = None) -> torch.device:
    """The device of a name; `auto` is the GPU if there is one. `local`: the number of this process on its machine if
    there are several, each of which has a GPU of its own."""
    kind = name.partition(":")[0]
    with setting_errors():
        known(kind, ("auto", "cpu", "cuda"), "device")
    if kind == "auto":
        name = kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise SettingError("device 'cuda': torch finds no GPU here; use --device cpu, or auto to take what there is")
    if local is not None and kind == "cuda":
        if ":" in name:
            raise SettingError(f"device {name!r}: of several processes each takes its own GPU; write --device cuda")
        name = f"cuda:{local}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(f"unknown device {name!r}; choose from: auto, cpu, cuda, cuda:N") from error
    if kind == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(f"device {name!r}: there are only {torch.cuda.device_count()} GPUs here")
    return device


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
