"""Checkpoints: weights and everything needed to resume exactly. Safetensors and JSON; nothing is pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.files import damage, new_folder, remove_folder, write_atomic, write_json
from seqloom.safety import file_errors, kind_of, not_a_file
from seqloom.training.distributed.sharding import place_like, saved_buffers, unshard

WEIGHTS, TENSORS, VALUES = "weights.safetensors", "training.safetensors", "training.json"
INTERRUPTED = "-interrupted"
CHECKSUM = "seqloom.sha256"  # of the tensors, in the header of their file


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    weights: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    values: dict[str, Any]


def weights(model: nn.Module, wanted: bool = True) -> dict[str, Tensor]:
    """Parameters and running statistics; a tied matrix under its first name only. Shards are joined, so all ranks must
    call it; without `wanted` a rank gets nothing."""
    return unshard(((name, tensor.detach()) for name, tensor in trained_tensors(model).items()), wanted)


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Tensors that training changes, by name: parameters, and running statistics of norms."""
    return {**dict(model.named_parameters()), **dict(saved_buffers(model))}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], file: Path | str) -> None:
    """Copy weights into a model of the same shape; a missing or extra tensor, or another shape, is an
    error."""
    if hasattr(model, "resize"):  # the shapes of counting models depend on the data
        model.resize({name: tuple(tensor.shape) for name, tensor in tensors.items()})  # pyright: ignore
    parameters = trained_tensors(model)
    if odd := sorted(parameters.keys() ^ tensors.keys()):
        raise SeqloomError(f"{file}: does not fit the model of config.yaml: {odd[0]} is in one of them only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            tensor = tensors[name]
            if parameter.shape != tensor.shape:
                shapes = f"{tuple(tensor.shape)}, the model has {tuple(parameter.shape)}"
                raise SeqloomError(f"{file}: does not fit the model of config.yaml: {name} is {shapes}")
            if tensor.dtype != parameter.dtype and not (tensor.is_floating_point() and parameter.is_floating_point()):
                raise SeqloomError(f"{file}: {name} is of the type {tensor.dtype}, the model's of {parameter.dtype}")
            parameter.copy_(place_like(tensor, parameter))


def save_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    stored = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    write_atomic(path, safetensors.torch.save(stored, {CHECKSUM: checksum(stored)}))


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and values, independent of their order in the file."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, verified by its checksum, if it has one."""
    try:
        if kind := kind_of(path.stat().st_mode):  # reading a FIFO would block
            raise not_a_file(path, kind)
        with safetensors.safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get(CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise SeqloomError(f"{path}: no such file") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise SeqloomError(f"{path}: damaged or not a safetensors file ({error})") from error
    if expected is not None and checksum(tensors) != expected:
        raise SeqloomError(f"{path}: damaged: its tensors do not match their checksum; put back a copy, or train again")
    return tensors


def save(
    parent: Path,
    trained: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    values: dict[str, Any],
    keep_last: int,
    interrupted: bool = False,
) -> Path:
    """Write `step-N` atomically, then remove the oldest beyond `keep_last`.

    An `interrupted` one, written because of a signal, has its own name: it can be resumed from, but it neither replaces
    others nor is averaged, so that an interrupted run ends like an uninterrupted one.
    """
    folder = parent / f"step-{values['step']:09d}{INTERRUPTED if interrupted else ''}"
    with new_folder(folder) as new:
        save_weights(new / WEIGHTS, trained)
        save_weights(new / TENSORS, tensors)
        write_json(new / VALUES, values)
    remaining = {folder, *scheduled(parent)[-keep_last:]}
    for old in checkpoint_folders(parent):
        if old not in remaining:
            remove_folder(old)
    return folder


def newest(parent: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and a message on each newer one. None: there are no checkpoints.

    If none of several is intact, that is an error: the run must not silently start over.
    """
    problems: list[str] = []
    for folder in reversed(checkpoint_folders(parent)):
        if wrong := damage(folder, (WEIGHTS, TENSORS, VALUES)):
            problems.append(f"{folder}: damaged checkpoint passed over: {wrong}")
            continue
        values = read_json(folder / VALUES)
        return Checkpoint(folder, read_tensors(folder / WEIGHTS), read_tensors(folder / TENSORS), values), problems
    if problems:
        raise SeqloomError(f"{parent}: no checkpoint is intact; {problems[0]}")
    return None, problems


def drop_newer(parent: Path, chosen: Path) -> None:
    """Remove checkpoints newer than the one that a run resumes from: they are damaged."""
    for folder in checkpoint_folders(parent):
        if folder.name > chosen.name:
            remove_folder(folder)


def checkpoint_folders(parent: Path) -> list[Path]:
    """Checkpoints, oldest first."""
    with file_errors(parent, "read"):
        if not parent.is_dir():
            return []
        # glob would treat an unreadable folder as empty
        return sorted(path for path in parent.iterdir() if path.name.startswith("step-"))


def scheduled(parent: Path) -> list[Path]:
    """Checkpoints written on schedule, not because of a signal."""
    return [folder for folder in checkpoint_folders(parent) if not folder.name.endswith(INTERRUPTED)]


def average_weights(parent: Path, count: int) -> dict[str, Tensor]:
    """The mean of the weights of the last `count` checkpoints (Vaswani et al. 2017, section 6.1)."""
    chosen = scheduled(parent)[-count:]
    total: dict[str, Tensor] = {}
    for folder in chosen:
        for name, tensor in read_tensors(folder / WEIGHTS).items():
            total[name] = total.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(chosen)).float() for name, tensor in total.items()}
