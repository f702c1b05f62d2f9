"""yoyodyne: its models and its loss in a plain loop, without Lightning's trainer, which would only cost it time."""

from __future__ import annotations

from typing import Any

from peers.talk import Entrant, Given, Order, Training, serve
from torch import Tensor
from yoyodyne import data, models
from yoyodyne.models import modules

SPARE = 2  # special tokens that it has beyond ours


def made(order: Order, model: type, encoder: Any, **more: Any) -> Entrant:
    """One table of embeddings for both sides: the target's tokens stand before the source's."""
    m = order.model
    size = order.target_size + order.source_size + SPARE
    sizes = {"vocab_size": size, "target_vocab_size": order.target_size, "embedding_size": encoder.embedding_size}
    sides = {"decoder_dropout": m["dropout"], "label_smoothing": 0.0, "compute_accuracy": False}
    longest = {"max_source_length": order.longest, "max_target_length": order.longest}
    return Training(model(source_encoder=encoder, **sizes, **sides, **longest, **more), guessed(order), order)


def guessed(order: Order) -> Any:
    """Its forward pass puts the start in front by itself, and gives [B, V, T]."""

    def logits(model: Any, batch: Given) -> Tensor:
        source = batch.source + (batch.source > 0) * order.target_size
        both = data.Batch(data.PaddedTensor.from_tensor(source), target=data.PaddedTensor.from_tensor(batch.labels))
        return model(both).transpose(1, 2)

    return logits


def transformer(order: Order) -> Entrant:
    m = order.model
    sizes = {"embedding_size": m["dim"], "hidden_size": m["hidden"], "layers": m["layers"], "dropout": m["dropout"]}
    encoder = modules.TransformerEncoder(attention_heads=m["heads"], **sizes)
    own = {"decoder_attention_heads": m["heads"], "decoder_hidden_size": m["hidden"], "decoder_layers": m["layers"]}
    return made(order, models.TransformerModel, encoder, **own)


def lstm(order: Order) -> Entrant:
    """Its attention reads the state before, and what was read enters the cell: a loop, as with feeding."""
    m = order.model
    sizes = {"embedding_size": m["embedding"], "hidden_size": m["dim"] // 2, "layers": 1, "dropout": m["dropout"]}
    encoder = modules.LSTMEncoder(bidirectional=True, **sizes)
    return made(order, models.SoftAttentionLSTMModel, encoder, decoder_hidden_size=m["dim"], decoder_layers=1)


if __name__ == "__main__":
    serve({"transformer": transformer, "lstm": lstm}, ("yoyodyne",))
