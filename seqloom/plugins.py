"""Plug-ins: entries that installed packages add to our tables, by entry points.

A package names what it brings in its pyproject.toml, under the kind of the part:

    [project.entry-points."seqloom.scores"]
    biaffine = "my_parts.scores:Biaffine"

`has` looks there when a table does not know a name, and never before: our own names always win, and no help or listing
reads entry points. What it finds stands in the table from then on. Nothing else is ever imported by a name: a config
from a stranger can choose among the entry points of installed packages, and no other code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PREFIX = "seqloom."
# The table of each kind. A kind is the name of a group of entry points, behind the prefix.
TABLES = {
    "scores": "seqloom.parts.attention.scores:SCORES",
    "cells": "seqloom.parts.recurrent.cells:CELLS",
    "mixers": "seqloom.parts.mixers.mixer_table:MIXERS",
    "positions": "seqloom.parts.positions.position_table:POSITIONS",
    "norms": "seqloom.parts.layers.norm:NORMS",
    "encoders": "seqloom.models.encoders:ENCODERS",
    "decoders": "seqloom.models.decoders:DECODERS",
    "objectives": "seqloom.training.objectives.objective_table:OBJECTIVES",
    "decodings": "seqloom.decoding.decoding_table:DECODINGS",
    "schedules": "seqloom.training.optim.schedule:SCHEDULES",
    "optimizers": "seqloom.training.optim.optimizer_table:OPTIMIZERS",
    "metrics": "seqloom.metrics.metric_table:METRICS",
    "datasets": "seqloom.data.datasets.catalog:DATASETS",
    "tasks": "seqloom.tasks.registry:TASKS",
}
KIND = re.compile("|".join(TABLES))
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # no dots and no colons: no path of a module is a name


class Plugin(NamedTuple):
    """Where an entry of a table comes from."""

    kind: str
    name: str
    package: str
    version: str


class PluginError(Exception):
    """An installed plug-in that cannot be used."""


_loaded: dict[tuple[str, str], Plugin] = {}


def has(table: Collection[Any], name: Any) -> bool:
    """Whether the table knows the name, by itself or from an installed package."""
    if name in [*table]:  # not by hash: a config may give anything for a name
        return True
    kind = kind_of(table) if isinstance(name, str) else None
    entry = None if kind is None else entry_point(kind, name)
    if kind is None or entry is None or not isinstance(table, dict):
        return False
    table[name] = _load(kind, entry, table)
    _loaded[kind, name] = origin(kind, entry)
    return True


def kind_of(table: Any) -> str | None:
    """The kind whose table this very object is."""
    for kind, address in TABLES.items():
        home, _, name = address.partition(":")
        if getattr(sys.modules.get(home), name, None) is table:
            return kind
    return None


def entry_point(kind: str, name: str) -> EntryPoint | None:
    """The entry point of that kind and name; an error if two packages bring it."""
    from importlib.metadata import entry_points

    if not NAME.fullmatch(name):
        return None
    found = {entry.dist.name if entry.dist else "": entry for entry in entry_points(group=PREFIX + kind, name=name)}
    if len(found) > 1:
        raise PluginError(f"{name!r} of {PREFIX}{kind} is brought by {' and by '.join(sorted(found))}: uninstall one")
    return next(iter(found.values()), None)


def origin(kind: str, entry: EntryPoint) -> Plugin:
    dist = entry.dist
    return Plugin(kind, entry.name, dist.name if dist else "", dist.version if dist else "")


def used(names: Iterable[tuple[str, Any]]) -> list[Plugin]:
    """Of (kind, name) those that stand in a table because a package brought them."""
    wanted = [*names]
    return [plugin for key, plugin in sorted(_loaded.items()) if key in wanted]


def _load(kind: str, entry: EntryPoint, table: Mapping[str, Any]) -> Any:
    plugin = origin(kind, entry)
    which = f"the plug-in {entry.name!r} ({PREFIX}{kind}: {entry.value}) of the package {plugin.package}"
    try:
        found = entry.load()
    except Exception as error:  # whatever goes wrong in another's code
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(f"{which} cannot be imported: {reason}") from error
    same_type = any(isinstance(found, type(entry)) for entry in table.values())
    if not same_type and not (callable(found) and any(map(callable, table.values()))):
        raise PluginError(f"{which} is no entry of that table: it is a {type(found).__name__}")
    return found
