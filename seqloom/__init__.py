"""Seqloom trains, compares and looks inside sequence models, from the RNN to the Transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seqloom import former_paths
from seqloom.errors import SeqloomError
from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom.acceleration import plain
    from seqloom.decoding.search_options import Search
    from seqloom.parts.probe import watch
    from seqloom.runs.load import load
    from seqloom.runs.train.train import Run, train
    from seqloom.tasks.translate.model import Translator

__all__ = ["Run", "Search", "SeqloomError", "Translator", "__version__", "load", "plain", "train", "watch"]

# Looked up on first use: `import seqloom` and `seqloom --help` do not wait for torch.
_HOMES = {
    "Run": "seqloom.runs.train.train",
    "Search": "seqloom.decoding.search_options",
    "Translator": "seqloom.tasks.translate.model",
    "load": "seqloom.runs.load",
    "plain": "seqloom.acceleration",
    "train": "seqloom.runs.train.train",
    "watch": "seqloom.parts.probe",
}

former_paths.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seqloom' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
