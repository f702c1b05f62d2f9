"""Models by one word, for every task. Literal tables, so that the command line can name them without importing torch.

A preset is a partial model config (and the training settings that suit it); a size adds the widths and depths.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from seqloom.errors import known
from seqloom.models import (
    presets_classify,
    presets_generate,
    presets_mask,
    presets_table,
    presets_tag,
    presets_translate,
    presets_vectors,
)
from seqloom.options import merge

__all__ = ["DEFAULT", "IMPORTED", "SIZES", "TASKS", "about", "merge", "preset", "suited"]

TASKS: dict[str, ModuleType] = {
    "translate": presets_translate,
    "classify": presets_classify,
    "table": presets_table,
    "tag": presets_tag,
    "generate": presets_generate,
    "mask": presets_mask,
    "vectors": presets_vectors,
}
# The model of a task if none is named.
DEFAULT = {
    "translate": "lstm-attention",
    "classify": "lstm",
    "table": "mlp",
    "tag": "lstm-crf",
    "generate": "lstm",
    "mask": "transformer",
    "vectors": "skipgram",
}
SIZES = ("tiny", "small", "base")
IMPORTED = "imported"  # said in place of a size of models that another library made


def preset(task: str, model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    table = TASKS[task]
    known(model, table.PRESETS, "model")
    return table.preset(model, known(size, SIZES, "size"))


def suited(task: str, model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config; anything the user sets wins."""
    return TASKS[task].suited(model)


def about(task: str) -> dict[str, str]:
    """The presets of a task, with a line on each."""
    return TASKS[task].ABOUT
