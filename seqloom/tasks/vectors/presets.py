"""Models of the task `vectors` by one word. Literal, so that the command line can name them without importing torch."""

from __future__ import annotations

from typing import Any

from seqloom.options import merge

DEFAULT = "skipgram"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {"skipgram": {}}

ABOUT = {"skipgram": "skip-gram with negative sampling (Mikolov et al. 2013)"}

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "skipgram": {"tiny": {"embedding": 32}, "small": {"embedding": 100}, "base": {"embedding": 300}}
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    return merge(PRESETS[model], SIZES[model][size])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit it: vectors want large steps, and no decay of words that are seldom seen."""
    return {"learning_rate": 5e-3, "schedule": "cosine", "warmup": 100, "weight_decay": 0.0, "clip": 0.0}
