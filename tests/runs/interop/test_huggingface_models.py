"""The Transformer equals Hugging Face's with the same weights: Marian (norm after) and Pegasus (norm before).

Their sinusoids have another layout (all sines, then all cosines), so their table is copied into learned positions.
"""

import copy
from itertools import product

import pytest
import torch
import transformers
from torch.nn import functional as F

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import shake

V, DIM, LAYERS, HEADS, HIDDEN, LONGEST = 13, 8, 2, 2, 12, 16
SOURCE = pad([[4, 5, 6, 7, EOS], [8, EOS], [9, 10, 11, EOS]])
TARGET = pad([[BOS, 4, 12, EOS], [BOS, 7, 7, 7, 5, EOS], [BOS, EOS]])
CONFIG = {
    "vocab_size": V,
    "d_model": DIM,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": HIDDEN,
    "decoder_ffn_dim": HIDDEN,
    "activation_function": "relu",
    "scale_embedding": True,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "max_position_embeddings": LONGEST,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}


def theirs(family, implementation, dtype):
    torch.manual_seed(0)
    if family == "marian":
        config = transformers.MarianConfig(**CONFIG, decoder_vocab_size=V, share_encoder_decoder_embeddings=False)
        made = transformers.MarianMTModel._from_config(config, attn_implementation=implementation)
    else:
        config = transformers.PegasusConfig(**CONFIG)
        made = transformers.PegasusForConditionalGeneration._from_config(config, attn_implementation=implementation)
    tables = [copy.deepcopy(part.embed_positions.weight) for part in (made.model.encoder, made.model.decoder)]
    shake(made.double(), 1).train()
    with torch.no_grad():
        for part, table in zip((made.model.encoder, made.model.decoder), tables, strict=True):
            part.embed_positions.weight.copy_(table)
        made.final_logits_bias.normal_()
    return made.to(dtype)


def ours(other, family, dtype):
    stack = {
        "kind": "transformer",
        "dim": DIM,
        "layers": LAYERS,
        "heads": HEADS,
        "hidden": HIDDEN,
        "position": {"kind": "learned", "longest": LONGEST},
        "norm": "after" if family == "marian" else "before",
        "dropout": 0.0,
    }
    made = Seq2Seq(V, V, stack, stack, embedding=DIM, dropout=0.0, tie_embeddings=True).to(dtype)
    with torch.no_grad():
        for mine, values in pairs(made, other, lambda parameter: parameter):
            mine.copy_(values)
        for mine, part in ((made.encoder, other.model.encoder), (made.decoder, other.model.decoder)):
            mine.enter.position.weight.copy_(part.embed_positions.weight)
        made.output.bias.copy_(other.final_logits_bias[0])
        made.source.weight.copy_(other.model.encoder.embed_tokens.weight)
        made.target.weight.copy_(other.model.decoder.embed_tokens.weight)
    return made


def pairs(made, other, of):
    """Our parameters beside theirs (or what `of` says of theirs), embeddings left out."""
    for mine, part in ((made.encoder, other.model.encoder), (made.decoder, other.model.decoder)):
        for block, layer in zip(mine.blocks, part.layers, strict=True):
            both = [(block.mix.out, layer.self_attn.out_proj), (block.mix_around.norm, layer.self_attn_layer_norm)]
            both += [(block.feed.up, layer.fc1), (block.feed.down, layer.fc2)]
            both += [(block.feed_around.norm, layer.final_layer_norm)]
            stacked = [(block.mix.project, layer.self_attn, "qkv")]
            if hasattr(block, "cross"):
                both += [(block.cross.out, layer.encoder_attn.out_proj), (block.cross.query, layer.encoder_attn.q_proj)]
                both += [(block.cross_around.norm, layer.encoder_attn_layer_norm)]
                stacked += [(block.cross.project, layer.encoder_attn, "kv")]
            for (a, b), name in product(both, ("weight", "bias")):
                yield getattr(a, name), of(getattr(b, name))
            for (a, b, letters), name in product(stacked, ("weight", "bias")):
                yield getattr(a, name), torch.cat([of(getattr(getattr(b, f"{x}_proj"), name)) for x in letters])
        if hasattr(part, "layer_norm"):
            for name in ("weight", "bias"):
                yield getattr(mine.norm, name), of(getattr(part.layer_norm, name))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["marian", "pegasus"])
def test_equals_hugging_face(family, implementation, dtype):
    bound = 1e-10 if dtype == torch.float64 else 1e-5
    other = theirs(family, implementation, dtype)
    made = ours(other, family, dtype)
    assert other.config._attn_implementation == implementation
    mask = (SOURCE.tokens != PAD).long()
    wanted = other(input_ids=SOURCE.tokens, attention_mask=mask, decoder_input_ids=TARGET.tokens[:, :-1]).logits
    labels = TARGET.tokens[:, 1:]
    real = labels != PAD
    found = made(SOURCE, TARGET.tokens[:, :-1])
    near(found[real], wanted[real], bound)
    assert wanted[real].std() > 0.1  # a model that says nothing would equal anything

    batch = Batch.of(SOURCE, TARGET)
    if dtype == torch.float64:
        F.cross_entropy(found[real], labels[real], reduction="sum").backward()
    else:
        TeacherForcing(made)(batch).total.backward()
    F.cross_entropy(wanted[real], labels[real], reduction="sum").backward()
    compared = list(pairs(made, other, lambda parameter: parameter.grad))
    for mine, slope in compared:
        near(mine.grad, slope, bound)
    if family == "marian":
        near(made.source.weight.grad, other.model.encoder.embed_tokens.weight.grad, bound)
        near(made.target.weight.grad, other.model.decoder.embed_tokens.weight.grad, bound)
    else:  # one matrix for source and target
        near(made.source.weight.grad + made.target.weight.grad, other.model.shared.weight.grad, bound)
    # Nothing of ours was left out but the positions and the output's bias, which they do not train.
    assert len(compared) + 2 == sum(not name.endswith("position.weight") for name, _ in made.named_parameters()) - 1


def near(found, wanted, bound):
    """The largest difference, relative to the largest number."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= bound * max(1.0, wanted.abs().max().item())


@pytest.mark.parametrize("family", ["marian", "pegasus"])
def test_greedy_decoding_writes_what_hugging_face_writes(family):
    from seqloom.decoding.search import decode
    from seqloom.decoding.search_options import Search

    other = theirs(family, "eager", torch.float64).eval()
    made = ours(other, family, torch.float64).eval()
    mask = (SOURCE.tokens != PAD).long()
    written = torch.full((3, 1), BOS)
    for _ in range(9):
        logits = other(input_ids=SOURCE.tokens, attention_mask=mask, decoder_input_ids=written).logits[:, -1]
        logits[:, [PAD, BOS]] = -torch.inf
        written = torch.cat([written, logits.argmax(-1)[:, None]], 1)
    wanted = [row[: row.index(EOS)] if EOS in row else row for row in written[:, 1:].tolist()]
    assert [list(answer[0].tokens) for answer in decode(made, SOURCE, [9] * 3, Search())] == wanted
