"""eole, the heir of OpenNMT-py: its models in a plain loop, as its trainer drives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from eole.config.models import RnnModelConfig, TransformerModelConfig
from eole.models.model import EncoderDecoderModel
from peers.talk import PAD, Entrant, Given, Order, Training, serve
from torch import Tensor


class Vocabulary:
    """All that building a model asks of one: how many tokens, and which of them pads."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, token: str) -> int:
        return PAD


def entered(config: Any, order: Order) -> Entrant:
    sides = {"src": Vocabulary(order.source_size), "tgt": Vocabulary(order.target_size)}
    dropout = order.model["dropout"]
    running = SimpleNamespace(
        dropout=[dropout],
        attention_dropout=[0.0],
        param_init_method="xavier_uniform",
        self_attn_backend="pytorch",
        parallel_gpu=1,
        storage_dtype=torch.float32,
        compute_dtype=torch.float32,
        **dict.fromkeys(("optim", "update_vocab"), None),
        **dict.fromkeys(("quant_layers", "quant_type", "lora_layers", "use_ckpting"), ()),
    )
    model = EncoderDecoderModel.build(config, {**sides, "specials": {"pad_token": "<pad>"}}, running)
    model.init_weights(running)
    return Training(model, guessed, order)


def guessed(model: Any, batch: Given) -> Tensor:
    """It reads all of the target but its last token: one that is cut off is put behind."""
    target = torch.nn.functional.pad(batch.tokens, (0, 1), value=PAD)
    return model.generator(model(batch.source, target, batch.lengths).dec_out)


def transformer(order: Order) -> Entrant:
    m = order.model
    places = {"position_encoding": True, "position_encoding_type": "SinusoidalInterleaved"}
    sizes = {"hidden_size": m["dim"], "layers": m["layers"], "heads": m["heads"], "transformer_ff": m["hidden"]}
    tied = {"share_decoder_embeddings": True, "add_qkvbias": True, "add_ffnbias": True}
    embeddings = {"word_vec_size": m["dim"], **places}
    return entered(TransformerModelConfig(embeddings=embeddings, **sizes, **tied), order)


def lstm(order: Order) -> Entrant:
    m = order.model
    config = RnnModelConfig(
        embeddings={"word_vec_size": m["embedding"], "position_encoding_type": None},
        encoder={"encoder_type": "rnn", "layers": 1, "hidden_size": m["dim"]},
        decoder={"decoder_type": "rnn", "layers": 1, "hidden_size": m["dim"]},
        input_feed=m.get("feeding", False),
    )
    config.encoder.encoder_type = "brnn"
    config.decoder.bidirectional_encoder = True
    return entered(config, order)


if __name__ == "__main__":
    serve({"transformer": transformer, "lstm": lstm}, ("eole",))
