"""Steps of fixed shapes equal the decoder's own, with branching hypotheses."""

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.fast.cuda_graphs.fixed_shape_decoder import (
    FixedShapeDecoder,
    Shape,
    fused_attention,
    matmul_attention,
    weights_key,
)
from seqloom.parts.probe import watch
from tests.laws import LENGTHS, close, drawn, heads_of, shake, source_rows, tiny_model

MOVES = ([1, 0, 3, 2, 4, 4], [0, 0, 2, 3, 5, 4], [1, 1, 3, 3, 4, 5], [0, 1, 3, 2, 5, 5])


def made(encoder="transformer", **options):
    torch.manual_seed(0)
    return shake(tiny_model(encoder, {"kind": "transformer", **options}).double(), 1)


def begin(fixed, source):
    """Begins with values of an earlier request in unused rows and columns."""
    fixed.source.tokens.fill_(5)
    for memory in (*fixed.cross_kv, *fixed.self_kv):
        memory.fill_(float("nan"))
    fixed.set_source(source, torch.zeros(fixed.size, dtype=torch.float64))
    fixed.begin(fixed.source if fixed.encoder_is_fixed else source)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("score", ["dot", "scaled", "general"])
@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "sinusoidal-rotary"])
@torch.no_grad()
def test_a_fixed_step_is_a_step(position, score, norm, width):
    model = made(position=position, score=score, norm=norm, activation="gelu" if norm == "after" else "relu")
    source, shape = source_rows(), Shape(4, width, 6, 9)  # one sentence, two positions and one step to spare
    fixed = FixedShapeDecoder(model, shape)
    begin(fixed, source)
    state, tokens = model.start(source, width=width, room=5), torch.full((3 * width,), BOS)
    for number, rows in enumerate(MOVES):
        rows = torch.tensor(rows) if width > 1 else torch.arange(3)
        wanted, state = model.step(tokens[:, None], state)
        assert (fixed.tokens[: 3 * width] == tokens).all()
        close([fixed.step(4 if number < 3 else 6)[: 3 * width]], [wanted[:, 0]])
        tokens, state = (5 + number + rows) % 4 + 4, state.pick(rows)
        fixed.tokens[: 3 * width] = tokens
        if width > 1:
            fixed.pick(torch.cat([rows, torch.tensor([6, 7])]))
        fixed.step_index += 1


@torch.no_grad()
def test_unsupported_blocks():
    assert weights_key(made().eval(), 2, 5) is not None
    heads = heads_of(1)
    for options in (
        {"position": "relative"},
        {"mixer": heads},
        {"cross": heads},
        {"mixer": "window"},
        {"mixer": "convolution"},
    ):
        assert weights_key(made(**options).eval(), 2, 5) is None
    for options in ({"norm_kind": "rms"}, {"residual": "dense"}, {"score": "additive"}):
        assert weights_key(made(**options).eval(), 2, 5) is None


@torch.no_grad()
def test_layers_read_their_own_views():
    torch.manual_seed(0)
    model = shake(tiny_model("transformer", {"kind": "transformer"}, views="each").double(), 1)
    fixed, source = FixedShapeDecoder(model, Shape(3, 1, 4, 8)), source_rows()
    begin(fixed, source)
    wanted, _ = model.step(torch.full((3, 1), BOS), model.start(source, room=4))
    close([fixed.step(4)], [wanted[:, 0]])


@torch.no_grad()
def test_an_encoder_that_packs_reads_the_request():
    model, source = made("lstm"), source_rows()
    fixed = FixedShapeDecoder(model, Shape(3, 1, 4, 8))
    assert not fixed.encoder_is_fixed
    begin(fixed, source)
    wanted, _ = model.step(torch.full((3, 1), BOS), model.start(source, room=4))
    close([fixed.step(4)], [wanted[:, 0]])


def test_two_matmuls_are_the_fused_kernel():
    q, k, v = drawn(3, 2, 4, 5, seed=1), drawn(3, 2, 7, 5, seed=2), drawn(3, 2, 7, 5, seed=3)
    for mask in (drawn(3, 1, 4, 7), drawn(1, 1, 4, 7), drawn(3, 1, 1, 7)):
        close([matmul_attention(q, k, v, mask, 0.3)], [fused_attention(q, k, v, mask, 0.3)])


def test_supported_requests():
    model = made()
    assert not weights_key(model, 4, 9)  # gradients are on
    with torch.no_grad():
        assert weights_key(model, 4, 9)
        assert not weights_key(model, 17, 9)
        assert not weights_key(model.train(), 4, 9)
        assert not weights_key(made(score="additive"), 4, 9)
        learned = made(position={"kind": "learned", "longest": max(LENGTHS)})
        assert weights_key(learned, 4, max(LENGTHS))
        assert not weights_key(learned, 4, max(LENGTHS) + 1)
        assert not weights_key(tiny_model("lstm", "attentive").eval(), 4, 9)
        with watch(model.eval()):
            assert not weights_key(model, 4, 9)
        with torch.autocast("cpu", torch.bfloat16):
            assert not weights_key(model, 4, 9)
        assert weights_key(model, 4, 9)
        model.target.register_forward_hook(lambda *_: None)
        assert not weights_key(model, 4, 9)
