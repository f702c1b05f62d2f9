"""Models of the task `mask` by one word. Literal, so that the command line can name them without importing torch."""

from __future__ import annotations

from typing import Any

from seqloom.options import merge

DEFAULT = "transformer"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    # Places are told apart by rotation: no table of them ends where longer texts of another task begin.
    "transformer": {
        "encoder": {"kind": "transformer", "activation": "gelu", "position": "rotary"},
        "tie_embeddings": True,
    },
    "gru": {"encoder": {"kind": "gru"}, "tie_embeddings": True},
    "lstm": {"encoder": {"kind": "lstm"}, "tie_embeddings": True},
}

ABOUT = {
    "transformer": "Transformer encoder, as BERT (Devlin et al. 2019)",
    "gru": "two-way GRU (Cho et al. 2014; Bahdanau et al. 2015)",
    "lstm": "two-way LSTM (Hochreiter & Schmidhuber 1997; Graves & Schmidhuber 2005)",
}

RECURRENT: dict[str, dict[str, Any]] = {
    "tiny": {"embedding": 64, "encoder": {"dim": 64}, "dropout": 0.1},
    "small": {"embedding": 128, "encoder": {"dim": 128}, "dropout": 0.1},
    "base": {"embedding": 256, "encoder": {"dim": 256, "layers": 2, "dropout": 0.1}, "dropout": 0.1},
}

TRANSFORMER: dict[str, dict[str, Any]] = {
    "tiny": {"embedding": 128, "encoder": {"dim": 128, "layers": 2, "heads": 4, "hidden": 512}, "dropout": 0.0},
    "small": {"embedding": 256, "encoder": {"dim": 256, "layers": 4, "heads": 4, "hidden": 1024}, "dropout": 0.0},
    "base": {"embedding": 512, "encoder": {"dim": 512, "layers": 6, "heads": 8, "hidden": 2048}, "dropout": 0.0},
}

SIZES: dict[str, dict[str, dict[str, Any]]] = {"transformer": TRANSFORMER, "gru": RECURRENT, "lstm": RECURRENT}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    return merge(PRESETS[model], SIZES[model][size])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config."""
    encoder = model.get("encoder", {})
    kind = encoder if isinstance(encoder, str) else encoder.get("kind")
    rate, warmup = (1e-3, 500) if kind == "transformer" else (2e-3, 100)
    return {"learning_rate": rate, "schedule": "cosine", "warmup": warmup}
