"""The Transformer's block: feed-forward, activations, and where the norm stands."""

import math

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.feed_forward import FeedForward
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, shake

X = [-3.0, -0.5, 0.0, 0.7, 2.0]
FORMULAS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", list(FORMULAS))
def test_activations_by_hand(name):
    found = ACTIVATIONS[name]()(torch.tensor(X, dtype=torch.float64))
    assert found.tolist() == pytest.approx([FORMULAS[name](x) for x in X], abs=1e-12)


def test_feed_forward_is_two_maps_at_every_place_by_itself():
    feed = shake(FeedForward(4, 6).double(), 1)
    x = drawn(2, 3, 4)
    close(feed(x), (x @ feed.up.weight.T + feed.up.bias).clamp(min=0) @ feed.down.weight.T + feed.down.bias)
    close(feed(x)[:, 1], feed(x[:, 1]))


def test_norm_before_and_after():
    x, y = drawn(2, 3, 8), drawn(2, 3, 8, seed=2)
    before, after = (shake(Residual(8, norm, 0.0).double(), 1) for norm in ("before", "after"))
    close(before.sublayer_input(x), before.norm(x))
    close(before.add(x, y), x + y)
    close(after.sublayer_input(x), x)
    close(after.add(x, y), after.norm(x + y))


@pytest.mark.parametrize("norm", ["before", "after"])
def test_a_block_equals_torchs(norm):
    ours = shake(Block(8, 2, 12, memory_dim=8, norm=norm).double(), 1)
    theirs = torch.nn.TransformerDecoderLayer(
        8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm == "before", dtype=torch.float64
    )
    theirs.self_attn.in_proj_weight.data = ours.mix.project.weight.data
    theirs.self_attn.in_proj_bias.data = ours.mix.project.bias.data
    theirs.multihead_attn.in_proj_weight.data = torch.cat([ours.cross.query.weight, ours.cross.project.weight]).data
    theirs.multihead_attn.in_proj_bias.data = torch.cat([ours.cross.query.bias, ours.cross.project.bias]).data
    for their, our in (
        (theirs.self_attn.out_proj, ours.mix.out),
        (theirs.multihead_attn.out_proj, ours.cross.out),
        (theirs.linear1, ours.feed.up),
        (theirs.linear2, ours.feed.down),
        (theirs.norm1, ours.mix_around.norm),
        (theirs.norm2, ours.cross_around.norm),
        (theirs.norm3, ours.feed_around.norm),
    ):
        their.load_state_dict(our.state_dict())
    x, memory, lengths = drawn(3, 5, 8), drawn(3, 4, 8, seed=2), torch.tensor([4, 1, 2])
    wanted = theirs(
        x,
        memory,
        tgt_mask=~torch.ones(5, 5).tril().bool(),
        memory_key_padding_mask=~(torch.arange(4) < lengths[:, None]),
    )
    seen = (ours.cross.project_memory(memory), Visibility(lengths=lengths))
    close(ours(x, Visibility(causal=True), memory=seen)[0], wanted)


def test_dropout_only_while_training():
    block = Block(8, 2, 12, dropout=0.5)
    x = torch.randn(2, 3, 8)
    assert torch.equal(block.eval()(x, Visibility())[0], block(x, Visibility())[0])
    assert not torch.allclose(block.train()(x, Visibility())[0], block(x, Visibility())[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "rellu"}, "unknown activation 'rellu'; did you mean 'relu'"),
        ({"norm": "befor"}, "unknown norm 'befor'; did you mean 'before'"),
        ({"score": "adittive"}, "unknown kind 'adittive'; did you mean 'additive'"),
    ],
)
def test_wrong_names_are_guessed(options, message):
    with pytest.raises(SeqloomError, match=message):
        Block(8, 2, 12, **options)
