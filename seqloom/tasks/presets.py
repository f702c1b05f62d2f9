"""Models by one word, for every task. Literal tables, so that the command line can name them without importing torch.

A preset is a partial model config (and the training settings that suit it); a size adds the widths and depths.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from seqloom.errors import known
from seqloom.options import merge
from seqloom.tasks.classify import presets as classify_presets
from seqloom.tasks.generate import presets as generate_presets
from seqloom.tasks.mask import presets as mask_presets
from seqloom.tasks.table import presets as table_presets
from seqloom.tasks.tag import presets as tag_presets
from seqloom.tasks.translate import presets as translate_presets
from seqloom.tasks.vectors import presets as vectors_presets

__all__ = ["DEFAULT", "SIZES", "TASKS", "about", "merge", "preset", "suited"]

TASKS: dict[str, ModuleType] = {
    "translate": translate_presets,
    "classify": classify_presets,
    "table": table_presets,
    "tag": tag_presets,
    "generate": generate_presets,
    "mask": mask_presets,
    "vectors": vectors_presets,
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
