"""Saving and restoring random states: of this process, and of all ranks for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from seqloom.training.distributed.processes import Ranks

DEVICES = ("cpu", "cuda")


def rng_state(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def set_rng_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def random_states(device: torch.device, ranks: Ranks) -> dict[str, Tensor]:
    """`random.<device>` of the first rank, `random.<rank>.<device>` of the others."""
    return {
        f"random.{f'{rank}.' if rank else ''}{name}": state
        for name, value in rng_state(device).items()
        for rank, state in enumerate(ranks.all_gather_tensors(value))
    }


def restore_random(tensors: Mapping[str, Tensor], device: torch.device, ranks: Ranks) -> None:
    """Restore this rank's part of `random_states`. Every rank looks all of them up, since that may be a collective."""
    states = {name.removeprefix("random."): tensors[name].cpu() for name in tensors if name.startswith("random.")}
    mine = f"{ranks.rank}." if ranks.rank else ""
    set_rng_state({name: states[mine + name] for name in DEVICES if mine + name in states}, device)
