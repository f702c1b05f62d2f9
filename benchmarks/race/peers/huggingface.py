"""Hugging Face transformers: Marian and BART translate, GPT-2 is the language model; `generate` with its cache."""

from __future__ import annotations

from typing import Any

import torch
from peers.talk import BOS, EOS, NEVER, PAD, Decoding, Entrant, Given, Order, Training, serve, silence
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel, MarianConfig
from transformers import MarianMTModel as Marian


def shared(order: Order) -> dict[str, Any]:
    """What the configurations of Marian and BART have in common."""
    m = order.model
    sides = {"layers": m["layers"], "attention_heads": m["heads"], "ffn_dim": m["hidden"]}
    return {
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
        "d_model": m["dim"],
        "max_position_embeddings": order.longest,
        "activation_function": "relu",
        "scale_embedding": True,
        "dropout": m["dropout"],
        "activation_dropout": m["dropout"],
        "attention_dropout": 0.0,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
        "attn_implementation": "sdpa",
    }


def marian(order: Order) -> Entrant:
    apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": order.target_size}
    model = Marian(MarianConfig(vocab_size=order.source_size, tie_word_embeddings=True, **apart, **shared(order)))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.requires_grad_(False)  # sinusoids: constants, as ours and torch's are
    return entered(model, order)


def bart(order: Order) -> Entrant:
    """One vocabulary for both sides, and norm after."""
    size = max(order.source_size, order.target_size)
    return entered(BartForConditionalGeneration(BartConfig(vocab_size=size, **shared(order))), order)


def entered(model: Any, order: Order) -> Entrant:
    if order.decodes:
        silence(model.final_logits_bias[0])
        model.final_logits_bias[0, order.target_size :] = NEVER
        return Decoding(model, write, order)
    return Training(model, translated, order)


def translated(model: Any, batch: Given) -> Tensor:
    mask = None if batch.real is None else batch.real.long()
    return model(batch.source, mask, decoder_input_ids=batch.tokens, use_cache=False).logits


def write(model: Any, batch: Given, order: Order) -> list[list[int]]:
    # A mask of ones saves `generate` from looking for padding; the model itself then drops it.
    mask = torch.ones_like(batch.source) if batch.real is None else batch.real.long()
    how = {"max_new_tokens": order.steps, "num_beams": order.beam, "do_sample": False, "use_cache": True}
    return model.generate(batch.source, attention_mask=mask, **how)[:, 1:].tolist()


def gpt2(order: Order) -> Entrant:
    m, drops = order.model, ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    sizes = {"n_embd": m["dim"], "n_layer": m["layers"], "n_head": m["heads"], "n_inner": m["hidden"]}
    places = {"n_positions": m["block"], "bos_token_id": BOS, "eos_token_id": EOS, "attn_implementation": "sdpa"}
    config = GPT2Config(vocab_size=order.target_size, **sizes, **places, **dict.fromkeys(drops, m["dropout"]))
    return Training(GPT2LMHeadModel(config), lambda model, batch: model(batch.tokens, use_cache=False).logits, order)


if __name__ == "__main__":
    serve({"marian": marian, "bart": bart, "gpt2": gpt2}, ("transformers",))
