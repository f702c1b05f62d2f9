"""x-transformers, with its fused attention: an encoder-decoder and a language model."""

from __future__ import annotations

from typing import Any

from peers.talk import Entrant, Given, Order, Training, serve
from torch import Tensor
from x_transformers import Decoder, TransformerWrapper, XTransformer


def stack(order: Order) -> dict[str, Any]:
    m = order.model
    return {
        "depth": m["layers"],
        "heads": m["heads"],
        "attn_dim_head": m["dim"] // m["heads"],
        "attn_flash": True,
        "ff_mult": m["hidden"] / m["dim"],
        "ff_dropout": m["dropout"],
    }


def transformer(order: Order) -> Entrant:
    sizes = {"num_tokens": (order.source_size, order.target_size), "max_seq_len": (order.longest,) * 2}
    ends = {f"{side}_{name}": pair[n] for n, side in enumerate(("enc", "dec")) for name, pair in sizes.items()}
    both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in stack(order).items()}
    return Training(XTransformer(dim=order.model["dim"], **ends, **both), translated, order)


def translated(model: Any, batch: Given) -> Tensor:
    read = model.encoder(batch.source, mask=batch.real, return_embeddings=True)
    return model.decoder.net(batch.tokens, context=read, context_mask=batch.real)


def language(order: Order) -> Entrant:
    layers = Decoder(dim=order.model["dim"], **stack(order))
    sizes = {"num_tokens": order.target_size, "max_seq_len": order.model["block"]}
    model = TransformerWrapper(attn_layers=layers, tie_embedding=True, **sizes)
    return Training(model, lambda model, batch: model(batch.tokens), order)


if __name__ == "__main__":
    serve({"transformer": transformer, "language": language}, ("x-transformers",))
