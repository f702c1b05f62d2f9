"""Taggers by one word: literal, as in `presets`."""

from __future__ import annotations

from typing import Any

from seqloom.options import merge

DEFAULT = "lstm-crf"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    "majority": {"kind": "majority"},
    "window": {"encoder": {"kind": "window"}, "characters": {"kind": "none"}, "output": {"kind": "softmax"}},
    **{
        name: {"encoder": {"kind": cell}, "characters": {"kind": cell}, "output": {"kind": output}}
        for name, cell, output in (
            ("rnn", "rnn", "softmax"),
            ("gru", "gru", "softmax"),
            ("lstm", "lstm", "softmax"),
            ("lstm-crf", "lstm", "crf"),
        )
    },
    **{
        name: {"encoder": {"kind": "transformer"}, "characters": {"kind": "convolution"}, "output": {"kind": output}}
        for name, output in (("transformer", "softmax"), ("transformer-crf", "crf"))
    },
}

ABOUT = {
    "majority": "each word's commonest tag, counted: the baseline (Charniak et al. 1993)",
    "window": "one hidden layer over five neighbours, words only (Collobert et al. 2011)",
    "rnn": "simple RNN both ways, with characters",
    "gru": "GRU both ways, with characters",
    "lstm": "LSTM both ways, with characters (Ling et al. 2015)",
    "lstm-crf": "LSTM both ways, with characters, and a CRF (Lample et al. 2016)",
    "transformer": "Transformer encoder, with characters by convolution (Vaswani et al. 2017; Ma & Hovy 2016)",
    "transformer-crf": "Transformer encoder, with characters by convolution, and a CRF",
}

_RECURRENT: dict[str, dict[str, Any]] = {
    "tiny": {"embedding": 64, "encoder": {"dim": 64}, "characters": {"embedding": 16, "dim": 32}, "dropout": 0.2},
    "small": {"embedding": 128, "encoder": {"dim": 128}, "characters": {"embedding": 32, "dim": 64}, "dropout": 0.4},
    "base": {
        "embedding": 256,
        "encoder": {"dim": 256, "layers": 2, "dropout": 0.4},
        "characters": {"embedding": 64, "dim": 128},
        "dropout": 0.5,
    },
}
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "recurrent": _RECURRENT,
    "transformer": {
        name: {
            "embedding": dim // 2,
            "encoder": {"dim": dim, "layers": layers, "heads": 4, "hidden": 4 * dim, "dropout": dropout},
            "characters": {"embedding": 32, "dim": dim // 2},
            "dropout": dropout,
        }
        for name, dim, layers, dropout in (("tiny", 128, 2, 0.1), ("small", 256, 3, 0.2), ("base", 512, 6, 0.3))
    },
    "window": {
        name: {"embedding": dim, "encoder": {"dim": 2 * dim}, "dropout": 0.3}
        for name, dim in (("tiny", 64), ("small", 128), ("base", 256))
    },
    "majority": {"tiny": {}, "small": {}, "base": {}},
}

# What suits a family; anything the user sets wins.
TRAINING: dict[str, dict[str, Any]] = {
    "recurrent": {"learning_rate": 3e-3, "schedule": "cosine", "warmup": 100, "batch_rows": 32},
    "transformer": {"learning_rate": 1.5e-3, "schedule": "cosine", "warmup": 200, "batch_rows": 32},
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    return merge(PRESETS[model], SIZES[family(PRESETS[model])][size])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config, from its encoder's family."""
    return dict(TRAINING["transformer" if family(model) == "transformer" else "recurrent"])


def family(model: dict[str, Any]) -> str:
    if model.get("kind") == "majority":
        return "majority"
    encoder = model.get("encoder", {})
    kind = encoder if isinstance(encoder, str) else encoder.get("kind")
    return kind if kind in ("transformer", "window") else "recurrent"
