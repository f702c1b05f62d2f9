"""Models of table rows by one word, as `presets` has those of translation. Literal: no torch."""

from __future__ import annotations

from typing import Any

from seqloom.errors import known
from seqloom.options import merge

DEFAULT = "mlp"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    "majority": {"kind": "majority"},
    "linear": {"encoder": {"kind": "gru"}, "pooling": "mean", "hidden": 0},
    "mlp": {"encoder": {"kind": "gru"}, "pooling": "max"},
    "mlp-transformer": {"encoder": {"kind": "transformer"}, "pooling": "mean"},
}

ABOUT = {
    "majority": "the commonest class, or the mean: what any model must beat (Holte 1993)",
    "linear": "linear, logistic or softmax regression (Legendre 1805; Cox 1958; Bridle 1990); texts through a GRU",
    "mlp": "layers with an activation between (Rumelhart et al. 1986); texts through a GRU",
    "mlp-transformer": "the same, texts through a Transformer (Vaswani et al. 2017)",
}

_ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "gru": {
        "tiny": {"embedding": 32, "encoder": {"dim": 32}},
        "small": {"embedding": 64, "encoder": {"dim": 64}},
        "base": {"embedding": 128, "encoder": {"dim": 128, "layers": 2, "dropout": 0.2}},
    },
    "transformer": {
        "tiny": {"embedding": 64, "encoder": {"dim": 64, "layers": 2, "heads": 4, "hidden": 256}},
        "small": {"embedding": 128, "encoder": {"dim": 128, "layers": 2, "heads": 4, "hidden": 512}},
        "base": {"embedding": 256, "encoder": {"dim": 256, "layers": 4, "heads": 8, "hidden": 1024}},
    },
}
_HIDDEN: dict[str, dict[str, Any]] = {
    "tiny": {"hidden": [32]},
    "small": {"hidden": [64, 64]},
    "base": {"hidden": [256, 256]},
}

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "majority": {size: {} for size in _HIDDEN},
    "linear": _ENCODERS["gru"],
    "mlp": {size: {**_ENCODERS["gru"][size], **_HIDDEN[size]} for size in _HIDDEN},
    "mlp-transformer": {size: {**_ENCODERS["transformer"][size], **_HIDDEN[size]} for size in _HIDDEN},
}

# What suits a model; anything the user sets wins. Tables are often small: with more rows a batch, twenty passes over
# them would be too few updates.
TRAINING: dict[str, dict[str, Any]] = {
    # Without decay the weights are those of the likelihood, or of least squares, and can be read off.
    "linear": {"learning_rate": 2e-2, "schedule": "cosine", "warmup": 20, "weight_decay": 0.0, "batch_rows": 32},
    "mlp": {"learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "weight_decay": 0.01, "batch_rows": 32},
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    sizes = SIZES[known(model, PRESETS, "model")]
    return merge(PRESETS[model], sizes[known(size, sizes, "size")])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config."""
    return dict(TRAINING["linear" if model.get("hidden") in (0, []) else "mlp"])
