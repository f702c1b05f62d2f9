"""Models that translate, by one word."""

from __future__ import annotations

from typing import Any

from seqloom.options import merge

DEFAULT = "lstm-attention"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    "rnn": {"encoder": {"kind": "rnn"}, "decoder": {"kind": "recurrent", "cell": "rnn"}},
    "gru": {"encoder": {"kind": "gru"}, "decoder": {"kind": "recurrent", "cell": "gru"}},
    "lstm": {"encoder": {"kind": "lstm"}, "decoder": {"kind": "recurrent", "cell": "lstm"}},
    "gru-attention": {
        "encoder": {"kind": "gru"},
        "decoder": {"kind": "attentive", "cell": "gru", "score": "additive", "query": "previous"},
    },
    "lstm-attention": {
        "encoder": {"kind": "lstm"},
        "decoder": {"kind": "attentive", "cell": "lstm", "score": "general", "query": "current"},
    },
    "transformer": {"encoder": {"kind": "transformer"}, "decoder": {"kind": "transformer"}},
}

ABOUT = {
    "rnn": "simple RNN, fixed context: the baseline",
    "gru": "GRU encoder-decoder, fixed context (Cho et al. 2014)",
    "lstm": "LSTM encoder-decoder, fixed context (Sutskever et al. 2014)",
    "gru-attention": "GRU with additive attention (Bahdanau et al. 2015)",
    "lstm-attention": "LSTM with general attention (Luong et al. 2015)",
    "transformer": "Transformer encoder and decoder (Vaswani et al. 2017)",
}

RECURRENT_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding": 64, "encoder": {"dim": 64}, "decoder": {"dim": 128}, "dropout": 0.1},
    "small": {"embedding": 128, "encoder": {"dim": 128}, "decoder": {"dim": 256}, "dropout": 0.2},
    "base": {
        "embedding": 256,
        "encoder": {"dim": 256, "layers": 2, "dropout": 0.3},
        "decoder": {"dim": 512, "layers": 2, "dropout": 0.3},
        "dropout": 0.3,
    },
}

TRANSFORMER_SIZES: dict[str, dict[str, Any]] = {
    name: {"embedding": dim, "encoder": dict(stack), "decoder": dict(stack), "dropout": 0.0, "tie_embeddings": True}
    for name, dim, stack in (
        ("tiny", 128, {"dim": 128, "layers": 2, "heads": 4, "hidden": 512}),
        ("small", 256, {"dim": 256, "layers": 3, "heads": 4, "hidden": 1024}),
        ("base", 512, {"dim": 512, "layers": 6, "heads": 8, "hidden": 2048}),
    )
}

# What suits a family; anything the user sets wins.
TRAINING: dict[str, dict[str, Any]] = {
    "recurrent": {"learning_rate": 2e-3, "schedule": "cosine", "warmup": 100},
    "transformer": {"learning_rate": 1e-3, "schedule": "inverse-sqrt", "warmup": 1000, "label_smoothing": 0.1},
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    return merge(PRESETS[model], (TRANSFORMER_SIZES if model == "transformer" else RECURRENT_SIZES)[size])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config, from its decoder's family."""
    decoder = model.get("decoder", {})
    kind = decoder if isinstance(decoder, str) else decoder.get("kind")
    return dict(TRAINING["transformer" if kind == "transformer" else "recurrent"])
