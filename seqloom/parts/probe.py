"""Probes: a part with a probe reports what it computes, and runs as it is written here.

`watch` runs the modules themselves, also of a compiled model or one with recorded steps, so nothing recompiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class Probed(nn.Module):
    """A part that can be watched. Its docstring tells what it reports."""

    probe: Callable[[Tensor], None] | None = None


@contextmanager
def watch(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what every probed part of `model` reports, by the part's name, one tensor a call."""
    parts = {name: part for name, part in model.named_modules() if isinstance(part, Probed)}
    seen: dict[str, list[Tensor]] = {name: [] for name in parts}
    before = {name: part.probe for name, part in parts.items()}
    try:
        for name, part in parts.items():
            part.probe = seen[name].append
        yield seen
    finally:
        for name, part in parts.items():
            del part.probe  # not set to None: a compiled step would see a new attribute and recompile
            if before[name] is not None:
                part.probe = before[name]
