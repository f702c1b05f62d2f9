"""One layer of Longformer, BigBird and Reformer equals Hugging Face's with the same weights and the same draws."""

import numpy as np
import torch
import transformers

from seqloom.parts.mixers.efficient_attention import EfficientAttention
from seqloom.parts.mixers.reformer import Reformer
from seqloom.parts.mixers.sparse import BigBird, Longformer
from seqloom.parts.visibility import Visibility, keep
from tests.laws import close, drawn, shake

DIM, HEADS, LENGTH = 16, 2, 48
LENGTHS = torch.tensor([LENGTH, 31])


def ours(layer: EfficientAttention) -> EfficientAttention:
    """What theirs has no part of is the identity."""
    layer = shake(layer.double(), 1)
    layer.out.weight.data, layer.out.bias.data = torch.eye(DIM).double(), torch.zeros(DIM).double()
    return layer


def copy(theirs: list[torch.nn.Linear], weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    for number, linear in enumerate(theirs):
        linear.weight.data = weight.data.chunk(len(theirs))[number]
        if bias is not None:
            linear.bias.data = bias.data.chunk(len(theirs))[number]


def test_longformer():
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    window, first = 5, 3
    config = transformers.LongformerConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        attention_window=[2 * (window - 1)],
        num_hidden_layers=1,
        attention_probs_dropout_prob=0.0,
    )
    theirs, layer = LongformerSelfAttention(config, 0).double(), ours(Longformer(DIM, HEADS, "scaled", window, first))
    copy([theirs.query, theirs.key, theirs.value], layer.project.weight, layer.project.bias)
    copy([theirs.query_global], layer.asking.weight, layer.asking.bias)
    copy([theirs.key_global, theirs.value_global], layer.asked.weight, layer.asked.bias)
    x, real = drawn(2, LENGTH, DIM), keep(LENGTHS, LENGTH)
    wide = (torch.arange(LENGTH) < first).expand(2, -1)
    mask = torch.where(~real, -10000.0, torch.where(wide, 10000.0, 0.0)).double()
    wanted = theirs(x, attention_mask=mask, is_index_masked=~real, is_index_global_attn=wide, is_global_attn=True)[0]
    close(layer(x, Visibility(lengths=LENGTHS))[0][real], wanted[real], 1e-6)


def test_bigbird(monkeypatch):
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

    block, random = 4, 1
    config = transformers.BigBirdConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        block_size=block,
        num_random_blocks=random,
        num_hidden_layers=1,
        attention_probs_dropout_prob=0.0,
        use_bias=True,
    )
    layer = ours(BigBird(DIM, HEADS, "scaled", block, random))
    chosen = layer.choose(LENGTH // block, None, torch.device("cpu"))
    assert chosen.keep[0, :, 1:-1, 5:].all()
    drawn_blocks = [np.array(head[1:-1, 5:].tolist()) for head in chosen.block[0]]
    monkeypatch.setattr(
        BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head", lambda *_, **__: drawn_blocks
    )
    theirs = BigBirdBlockSparseAttention(config, seed=0).double().train()
    copy([theirs.query, theirs.key, theirs.value], layer.project.weight, layer.project.bias)
    x = drawn(2, LENGTH, DIM)
    masks = transformers.BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(2, LENGTH).double(), block)
    blocked, band, asks, asked = masks
    wanted = theirs(
        x, band_mask=band, from_mask=asks, to_mask=asked, from_blocked_mask=blocked, to_blocked_mask=blocked
    )[0]
    close(layer(x, Visibility())[0], wanted, 1e-6)


def test_reformer():
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    chunk, buckets, rounds = 8, 4, 3
    config = transformers.ReformerConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        attention_head_size=DIM // HEADS,
        lsh_attn_chunk_length=chunk,
        num_buckets=buckets,
        num_hashes=rounds,
        hash_seed=7,
        is_decoder=False,
        lsh_attention_probs_dropout_prob=0.0,
    )
    theirs, layer = LSHSelfAttention(config).double(), ours(Reformer(DIM, HEADS, "scaled", chunk, buckets, rounds))
    layer.project.bias.data.zero_()
    copy([theirs.query_key, theirs.value], layer.project.weight, None)
    torch.manual_seed(7)
    layer.rotations = torch.randn(layer.rotations.shape, dtype=torch.float64)
    x = drawn(2, LENGTH, DIM)
    close(layer(x, Visibility())[0], theirs(x).hidden_states, 1e-6)
