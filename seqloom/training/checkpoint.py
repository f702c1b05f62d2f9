"""Checkpoints: weights and everything needed to go on exactly. Safetensors and JSON; nothing is pickled."""

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
EXTRA = "-interrupted"
SUM = "seqloom.sha256"  # of the tensors, in the header of their own file: written with them at once, never apart


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    weights: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    values: dict[str, Any]


def weights(model: nn.Module, wanted: bool = True) -> dict[str, Tensor]:
    """Parameters and running statistics, each once; a tied matrix is stored under its first name only. Shards are
    joined, for which all ranks must call it; without `wanted` a rank gets nothing."""
    return unshard(((name, tensor.detach()) for name, tensor in learned(model).items()), wanted)


def learned(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, by name: parameters, and the running statistics of norms."""
    return {**dict(model.named_parameters()), **dict(saved_buffers(model))}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], file: Path | str) -> None:
    """Copy weights into a model of the same shape; anything missing, left over or of another shape is named."""
    if hasattr(model, "resize"):  # its shapes depend on the data it counted
        model.resize({name: tuple(tensor.shape) for name, tensor in tensors.items()})  # pyright: ignore
    parameters = learned(model)
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
    write_atomic(path, safetensors.torch.save(stored, {SUM: sum_of(stored)}))


def sum_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes, types and numbers, however the file orders them."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """What a safetensors file holds, compared with its sum; a file without one, of an older Seqloom or of others, is
    taken as it is."""
    try:
        if kind := kind_of(path.stat().st_mode):  # a FIFO would be waited for
            raise not_a_file(path, kind)
        with safetensors.safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get(SUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise SeqloomError(f"{path}: no such file") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise SeqloomError(f"{path}: damaged or not a safetensors file ({error})") from error
    if expected is not None and sum_of(tensors) != expected:
        raise SeqloomError(f"{path}: damaged: its tensors do not match their checksum; put back a copy, or train again")
    return tensors


def save(
    parent: Path,
    trained: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    values: dict[str, Any],
    keep_last: int,
    extra: bool = False,
) -> Path:
    """Write `step-N` whole or not at all, then remove the oldest beyond `keep_last`.

    An `extra` one, written because of a signal, has a name of its own: it can be resumed from like any other, but it
    neither replaces others nor is averaged, so that an interrupted run ends like one that was not.
    """
    folder = parent / f"step-{values['step']:09d}{EXTRA if extra else ''}"
    with new_folder(folder) as new:
        save_weights(new / WEIGHTS, trained)
        save_weights(new / TENSORS, tensors)
        write_json(new / VALUES, values)
    remaining = {folder, *in_turn(parent)[-keep_last:]}
    for old in folders(parent):
        if old not in remaining:
            remove_folder(old)
    return folder


def newest(parent: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies, and what is wrong with each newer one. None: there is none at all.

    If checkpoints exist but none verifies, that is an error: starting over would lose what the user thinks is there.
    """
    problems: list[str] = []
    for folder in reversed(folders(parent)):
        if wrong := damage(folder, (WEIGHTS, TENSORS, VALUES)):
            problems.append(f"{folder}: damaged checkpoint passed over: {wrong}")
            continue
        values = read_json(folder / VALUES)
        return Checkpoint(folder, read_tensors(folder / WEIGHTS), read_tensors(folder / TENSORS), values), problems
    if problems:
        raise SeqloomError(f"{parent}: no checkpoint is intact; {problems[0]}")
    return None, problems


def drop_newer(parent: Path, chosen: Path) -> None:
    """Remove checkpoints newer than the one that a run resumes from: they are damaged and must not count."""
    for folder in folders(parent):
        if folder.name > chosen.name:
            remove_folder(folder)


def folders(parent: Path) -> list[Path]:
    """Checkpoints, oldest first."""
    with file_errors(parent, "read"):
        if not parent.is_dir():
            return []
        # glob would take a folder that may not be read for an empty one
        return sorted(path for path in parent.iterdir() if path.name.startswith("step-"))


def in_turn(parent: Path) -> list[Path]:
    """Those written on schedule, not because of a signal."""
    return [folder for folder in folders(parent) if not folder.name.endswith(EXTRA)]


def averaged(parent: Path, count: int) -> dict[str, Tensor]:
    """The mean of the weights of the last `count` checkpoints (Vaswani et al. 2017, section 6.1)."""
    chosen = in_turn(parent)[-count:]
    total: dict[str, Tensor] = {}
    for folder in chosen:
        for name, tensor in read_tensors(folder / WEIGHTS).items():
            total[name] = total.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(chosen)).float() for name, tensor in total.items()}
