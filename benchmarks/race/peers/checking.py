"""What an entrant really does in one pass: the words and tokens it counts, what learns, threads and precision in force.

The race compares it with what was ordered, so that nobody is quick because it does less, or other work than is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def checked(entrant: Any, device: torch.device, compiled: bool = False) -> dict[str, Any]:
    """One pass, looked at. An entrant that knows better itself has a `checked` of its own. Modules that are compiled or
    recorded are not looked at: what looks would be compiled with them."""
    if hasattr(entrant, "checked"):
        return entrant.checked()
    before = [(parameter, parameter.detach().clone()) for parameter in entrant.model.parameters()]
    with nullcontext(set[torch.dtype]()) if compiled else _dtypes(device) as seen:
        done = entrant.go(1)
    learns = sum(now.numel() for now, was in before if now.requires_grad and not torch.equal(now, was))
    force = {"threads": torch.get_num_threads(), "workers": 1, "precision": _precision(entrant.model, seen)}
    return {**force, **entrant.did(done), **entrant.told(done), "learns": learns}


def _precision(model: nn.Module, seen: set[torch.dtype]) -> str | None:
    """That of the products; where no module was called by itself, that of halved weights; None: not known."""
    halves = {parameter.dtype for parameter in model.parameters()} & {torch.bfloat16}
    return " and ".join(sorted(NAMES.get(one, str(one)) for one in seen or halves)) or None


@contextmanager
def _dtypes(device: torch.device) -> Iterator[set[torch.dtype]]:
    """In what the modules with matrices are called: what autocast says, else their weights' own."""
    seen: set[torch.dtype] = set()

    def note(module: nn.Module, _: Any) -> None:
        weights = [one for one in module.parameters(recurse=False) if one.dim() > 1 and one.is_floating_point()]
        if weights and not isinstance(module, nn.Embedding):
            cast = torch.is_autocast_enabled(device.type)
            seen.add(torch.get_autocast_dtype(device.type) if cast else weights[0].dtype)

    hook = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield seen
    finally:
        hook.remove()
