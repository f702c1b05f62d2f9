"""Classifiers by one word: see `presets`. Literal, so that the command line can name them without importing torch."""

from __future__ import annotations

import copy
from typing import Any

from seqloom.errors import known
from seqloom.options import merge

DEFAULT = "lstm"  # the model if none is named

PRESETS: dict[str, dict[str, Any]] = {
    "rnn": {"encoder": {"kind": "rnn"}, "pooling": {"kind": "both"}},
    "gru": {"encoder": {"kind": "gru"}, "pooling": {"kind": "max"}},
    "lstm": {"encoder": {"kind": "lstm"}, "pooling": {"kind": "max"}},
    "mingru": {"encoder": {"kind": "recurrent", "cell": {"kind": "mingru"}}, "pooling": {"kind": "max"}},
    "minlstm": {"encoder": {"kind": "recurrent", "cell": {"kind": "minlstm"}}, "pooling": {"kind": "max"}},
    "attentive-rnn": {"encoder": {"kind": "recurrent", "cell": {"kind": "attentive-rnn"}}, "pooling": {"kind": "both"}},
    "lstmn": {"encoder": {"kind": "recurrent", "cell": {"kind": "lstmn"}}, "pooling": {"kind": "max"}},
    "gru-attention": {"encoder": {"kind": "gru"}, "pooling": {"kind": "attention"}},
    "lstm-attention": {"encoder": {"kind": "lstm"}, "pooling": {"kind": "attention"}},
    "convolution": {"encoder": {"kind": "convolution"}, "pooling": {"kind": "max"}},
    "transformer": {"encoder": {"kind": "transformer"}, "pooling": {"kind": "mean"}},
    "bag": {"kind": "bag"},
    "logistic": {"kind": "logistic"},
    "softmax": {"kind": "softmax"},
    "mlp": {"kind": "mlp"},
    "majority": {"kind": "majority"},
}

ABOUT = {
    "rnn": "two-way simple RNN, the last states of both directions (Elman 1990)",
    "gru": "two-way GRU, the largest value over time (Cho et al. 2014)",
    "lstm": "two-way LSTM, the largest value over time (Hochreiter & Schmidhuber 1997)",
    "mingru": "two-way minGRU, trained without a loop over time, the largest value over time (Feng et al. 2024)",
    "minlstm": "two-way minLSTM, trained without a loop over time, the largest value over time (Feng et al. 2024)",
    "attentive-rnn": "two-way simple RNN with attention over its own past, the last states of both directions",
    "lstmn": "two-way LSTM with attention over its own past, the largest value over time (Cheng et al. 2016)",
    "gru-attention": "two-way GRU with attention pooling (Yang et al. 2016)",
    "lstm-attention": "two-way LSTM with attention pooling (Yang et al. 2016)",
    "convolution": "gated convolutions, the largest value over time (Kim 2014; Dauphin et al. 2017)",
    "transformer": "Transformer encoder, the mean over time (Vaswani et al. 2017)",
    "bag": "mean of embeddings and a linear layer (fastText: Joulin et al. 2017)",
    "logistic": "logistic regression on the embeddings of the first tokens, for two labels (Cox 1958)",
    "softmax": "softmax regression on the embeddings of the first tokens (Bridle 1990)",
    "mlp": "a network of linear layers over the embeddings of the first tokens (Rumelhart et al. 1986)",
    "majority": "always the commonest label: what a model must beat (Holte 1993)",
}

_FIRST = {
    "tiny": {"embedding": 8, "length": 20},
    "small": {"embedding": 32, "length": 40},
    "base": {"embedding": 64, "length": 80},
}
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "recurrent": {
        "tiny": {"embedding": 64, "encoder": {"dim": 64}, "dropout": 0.2},
        "small": {"embedding": 128, "encoder": {"dim": 128}, "dropout": 0.4},
        "base": {"embedding": 256, "encoder": {"dim": 256, "layers": 2, "dropout": 0.4}, "dropout": 0.5},
    },
    "convolution": {
        name: {"embedding": dim, "encoder": {"dim": dim, "layers": layers}, "dropout": dropout}
        for name, dim, layers, dropout in (("tiny", 64, 2, 0.2), ("small", 128, 3, 0.4), ("base", 256, 4, 0.5))
    },
    "transformer": {
        name: {
            "embedding": dim,
            "encoder": {"dim": dim, "layers": layers, "heads": 4, "hidden": 4 * dim},
            "dropout": 0.2,
        }
        for name, dim, layers in (("tiny", 64, 2), ("small", 128, 2), ("base", 256, 4))
    },
    "bag": {"tiny": {"embedding": 32}, "small": {"embedding": 128}, "base": {"embedding": 512}},
    "first": _FIRST,
    "mlp": {
        name: {**_FIRST[name], "hidden": hidden, "dropout": 0.2}
        for name, hidden in (("tiny", 32), ("small", 128), ("base", 512))
    },
    "majority": {"tiny": {}, "small": {}, "base": {}},
}
FAMILIES = {name: name for name in ("convolution", "transformer", "bag", "mlp", "majority")}
FAMILIES |= {"logistic": "first", "softmax": "first"}

# What suits a family; anything the user sets wins.
TRAINING: dict[str, dict[str, Any]] = {
    "recurrent": {"learning_rate": 2e-3, "schedule": "cosine", "warmup": 100, "batch_rows": 64},
    "transformer": {
        "learning_rate": 5e-4,
        "schedule": "cosine",
        "warmup": 400,
        "batch_rows": 64,
        "label_smoothing": 0.1,
    },
    "plain": {"learning_rate": 5e-3, "schedule": "cosine", "warmup": 50, "batch_rows": 64},
}


def preset(model: str, size: str) -> dict[str, Any]:
    """The partial model config of a preset at a size."""
    config = copy.deepcopy(PRESETS[known(model, PRESETS, "model")])
    sizes = SIZES[FAMILIES.get(model, "recurrent")]
    return merge(config, sizes[known(size, sizes, "size")])


def suited(model: dict[str, Any]) -> dict[str, Any]:
    """Training settings that suit a model config."""
    if model.get("kind", "classifier") != "classifier":
        return dict(TRAINING["plain"])
    encoder = model.get("encoder", {})
    kind = encoder if isinstance(encoder, str) else encoder.get("kind")
    return dict(TRAINING["transformer" if kind == "transformer" else "recurrent"])
