"""The plug-ins of a run: recorded in its config with package and version, and asked for when the run is loaded.

plugins:
  scores:biaffine: {package: my-seqloom-parts, version: '0.3'}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seqloom import plugins
from seqloom.build import chosen
from seqloom.errors import SeqloomError, shown
from seqloom.tasks.registry import task

KEY = "plugins"
# Settings that are names of a table, by the kind of the table.
SETTINGS = {
    "objectives": ("training", "objective"),
    "optimizers": ("training", "optimizer"),
    "schedules": ("training", "schedule"),
    "metrics": ("training", "select"),
}
TO_TRAIN = ("datasets",)  # kinds without which a run still predicts
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # as packages are called: what an error tells to install
VERSION = re.compile(r"[A-Za-z0-9.!+_-]{1,100}")
_noted: set[str] = set()


def recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A complete config with the plug-ins that it names, if any."""
    used = {
        f"{one.kind}:{one.name}": {"package": one.package, "version": one.version}
        for one in plugins.used(_names(config))
    }
    return {**config, KEY: {**config.get(KEY, {}), **used}} if used else dict(config)


def _names(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "tasks", config["task"]
    model = config.get("model")
    for table, name in chosen(task(config["task"]).models, model) if model else ():
        if kind := plugins.kind_of(table):
            yield kind, name
    for kind, (section, name) in SETTINGS.items():
        value = config.get(section, {}).get(name)
        yield kind, value.get("kind") if isinstance(value, Mapping) else value
    inputs = config.get("inputs", {})
    for files in (inputs.get("train"), inputs.get("valid")):
        for name in [files] if isinstance(files, str) else files if isinstance(files, list) else []:
            yield "datasets", str(name).partition(":")[0]


def check(config: Mapping[str, Any], file: Path) -> None:
    """Refuse a config whose plug-ins are not installed; another version than in training is a note."""
    recorded = config.get(KEY, {})
    if not isinstance(recorded, Mapping):
        raise SeqloomError(f"{file}: {KEY} must be keys and values, here {shown(recorded)}")
    for key, value in recorded.items():
        kind, _, name = str(key).partition(":")
        facts = value if isinstance(value, Mapping) else {}
        plugin = plugins.Plugin(kind, name, facts.get("package", ""), facts.get("version", ""))
        patterns = (plugins.KIND, plugins.NAME, PACKAGE, VERSION)
        if not all(isinstance(text, str) and form.fullmatch(text) for form, text in zip(patterns, plugin, strict=True)):
            raise SeqloomError(f"{file}: {KEY}: {shown(key)}: {shown(value)} is no plug-in with package and version")
        if kind not in TO_TRAIN:
            _check_one(f"{file}: the plug-in {key}", plugin)


def _check_one(which: str, recorded: plugins.Plugin) -> None:
    try:
        entry = plugins.entry_point(recorded.kind, recorded.name)
    except plugins.PluginError as error:
        raise SeqloomError(f"{which}: {error}") from error
    found = None if entry is None else plugins.origin(recorded.kind, entry)
    if found is None or _normal(found.package) != _normal(recorded.package):
        instead = "" if found is None else f"; {found.package} has another of that name"
        raise SeqloomError(
            f"{which} is of the package {recorded.package} {recorded.version}, which is not installed{instead}; "
            f"if you trust it: pip install {recorded.package}=={recorded.version}"
        )
    if found.version != recorded.version:
        _note(f"{which} was {recorded.package} {recorded.version} in training, and is {found.version} now")


def _note(text: str) -> None:
    """Once in a process: a command may read a config several times."""
    if text not in _noted:
        _noted.add(text)
        print(f"note: {text}", file=sys.stderr)


def _normal(package: str) -> str:
    """Names of packages are equal without regard to case and signs (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()
