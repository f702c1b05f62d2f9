"""Language models, by one word."""

from __future__ import annotations

from typing import Any

from seqloom.options import merge

DEFAULT = "lstm"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    "ngram": {"kind": "ngram"},
    "rnn": {"encoder": {"kind": "rnn"}},
    "gru": {"encoder": {"kind": "gru"}},
    "lstm": {"encoder": {"kind": "lstm"}},
    **{name: {"encoder": {"kind": "recurrent", "cell": {"kind": name}}} for name in ("mingru", "minlstm")},
    # With a window the history is carried on from batch to batch, as other states are.
    **{
        name: {"encoder": {"kind": "recurrent", "cell": {"kind": name, "window": 64}}}
        for name in ("attentive-rnn", "lstmn")
    },
    "awd-lstm": {
        "encoder": {"kind": "lstm", "layers": 3, "locked_dropout": True, "weight_drop": 0.5, "dropout": 0.25},
        "tie_embeddings": True,
        "locked_dropout": True,
        "dropout": 0.4,
        "embedding_dropout": 0.1,
        "activation_penalty": 2.0,
        "temporal_penalty": 1.0,
    },
    "transformer": {"encoder": {"kind": "transformer"}, "tie_embeddings": True, "dropout": 0.0},
}

ABOUT = {
    "ngram": "counted, not trained: modified Kneser-Ney (Chen & Goodman 1999), the baseline",
    "rnn": "simple RNN (Mikolov et al. 2010)",
    "gru": "GRU (Cho et al. 2014)",
    "lstm": "LSTM (Zaremba et al. 2014)",
    "mingru": "GRU whose gates see the input alone, trained without a loop over time (Feng et al. 2024)",
    "minlstm": "LSTM whose gates see the input alone, trained without a loop over time (Feng et al. 2024)",
    "attentive-rnn": "simple RNN with attention over its last 64 states in the place of the last one",
    "lstmn": "LSTM with attention over its last 64 states (Cheng et al. 2016)",
    "awd-lstm": "LSTM with dropped weights, locked dropout and a tied output, for words (Merity et al. 2018)",
    "transformer": "Transformer that sees what is behind it (Radford et al. 2018)",
}

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "ngram": {"tiny": {"order": 3}, "small": {"order": 5}, "base": {"order": 6}},
    "recurrent": {
        "tiny": {"embedding": 64, "encoder": {"dim": 128}, "dropout": 0.1},
        "small": {"embedding": 128, "encoder": {"dim": 512}, "dropout": 0.2},
        "base": {"embedding": 256, "encoder": {"dim": 768, "layers": 2, "dropout": 0.3}, "dropout": 0.3},
    },
    "awd-lstm": {
        "tiny": {"embedding": 64, "encoder": {"dim": [128, 128, 64]}},
        "small": {"embedding": 256, "encoder": {"dim": [512, 512, 256]}},
        "base": {"embedding": 400, "encoder": {"dim": [1150, 1150, 400]}},
    },
    "transformer": {
        name: {"embedding": dim, "encoder": {"dim": dim, "layers": layers, "heads": heads, "hidden": 4 * dim} | more}
        for name, dim, layers, heads, more in (
            ("tiny", 128, 2, 4, {"dropout": 0.1}),
            ("small", 256, 4, 4, {"dropout": 0.1}),
            ("base", 384, 6, 6, {"dropout": 0.2}),
        )
    },
}

# What suits a family; anything the user sets wins.
TRAINING: dict[str, dict[str, Any]] = {
    "ngram": {},
    "recurrent": {"learning_rate": 2e-3, "schedule": "cosine", "warmup": 100},
    "transformer": {"learning_rate": 1e-3, "schedule": "cosine", "warmup": 100},
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    return merge(PRESETS[model], SIZES[model if model in SIZES else "recurrent"][size])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config, from its stack's family."""
    encoder = model.get("encoder", {})
    kind = encoder if isinstance(encoder, str) else encoder.get("kind", model.get("kind"))
    return dict(TRAINING.get(kind, TRAINING["recurrent"]))
