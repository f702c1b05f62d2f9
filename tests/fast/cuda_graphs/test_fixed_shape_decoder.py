"""Steps of fixed shapes beside the model's own, with hypotheses that branch."""

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.fast.cuda_graphs.fixed_shape_decoder import Fixed, Shape, fits, fused, products
from seqloom.parts.probe import watch
from tests.laws import LENGTHS, close, drawn, heads_of, shake, source_rows, tiny_model

MOVES = ([1, 0, 3, 2, 4, 4], [0, 0, 2, 3, 5, 4], [1, 1, 3, 3, 4, 5], [0, 1, 3, 2, 5, 5])


def made(encoder="transformer", **options):
    torch.manual_seed(0)
    return shake(tiny_model(encoder, {"kind": "transformer", **options}).double(), 1)


def asked(fixed, source):
    """Begins; spare rows and places hold something from before."""
    fixed.source.tokens.fill_(5)
    for memory in (*fixed.memories, *fixed.written):
        memory.fill_(float("nan"))
    fixed.ask(source, torch.zeros(fixed.size, dtype=torch.float64))
    fixed.begin(fixed.source if fixed.still else source)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("score", ["dot", "scaled", "general"])
@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "sinusoidal-rotary"])
@torch.no_grad()
def test_a_fixed_step_is_a_step(position, score, norm, width):
    model = made(position=position, score=score, norm=norm, activation="gelu" if norm == "after" else "relu")
    source, shape = source_rows(), Shape(4, width, 6, 9)  # a sentence, two places and a step more than there are
    fixed = Fixed(model, shape)
    asked(fixed, source)
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
        fixed.at += 1


@torch.no_grad()
def test_what_is_not_usual_goes_the_plain_way():
    assert fits(made().eval(), 2, 5) is not None
    heads = heads_of(1)
    for options in (
        {"position": "relative"},
        {"mixer": heads},
        {"cross": heads},
        {"mixer": "window"},
        {"mixer": "convolution"},
    ):
        assert fits(made(**options).eval(), 2, 5) is None
    for options in ({"norm_kind": "rms"}, {"residual": "dense"}, {"score": "additive"}):
        assert fits(made(**options).eval(), 2, 5) is None


@torch.no_grad()
def test_layers_read_their_own_views():
    torch.manual_seed(0)
    model = shake(tiny_model("transformer", {"kind": "transformer"}, views="each").double(), 1)
    fixed, source = Fixed(model, Shape(3, 1, 4, 8)), source_rows()
    asked(fixed, source)
    wanted, _ = model.step(torch.full((3, 1), BOS), model.start(source, room=4))
    close([fixed.step(4)], [wanted[:, 0]])


@torch.no_grad()
def test_an_encoder_that_packs_reads_what_was_asked():
    model, source = made("lstm"), source_rows()
    fixed = Fixed(model, Shape(3, 1, 4, 8))
    assert not fixed.still
    asked(fixed, source)
    wanted, _ = model.step(torch.full((3, 1), BOS), model.start(source, room=4))
    close([fixed.step(4)], [wanted[:, 0]])


def test_two_products_are_the_fused_kernel():
    q, k, v = drawn(3, 2, 4, 5, seed=1), drawn(3, 2, 7, 5, seed=2), drawn(3, 2, 7, 5, seed=3)
    for mask in (drawn(3, 1, 4, 7), drawn(1, 1, 4, 7), drawn(3, 1, 1, 7)):
        close([products(q, k, v, mask, 0.3)], [fused(q, k, v, mask, 0.3)])


def test_what_fits():
    model = made()
    assert not fits(model, 4, 9)  # gradients are on
    with torch.no_grad():
        assert fits(model, 4, 9)
        assert not fits(model, 17, 9)
        assert not fits(model.train(), 4, 9)
        assert not fits(made(score="additive"), 4, 9)
        learned = made(position={"kind": "learned", "longest": max(LENGTHS)})
        assert fits(learned, 4, max(LENGTHS))
        assert not fits(learned, 4, max(LENGTHS) + 1)
        assert not fits(tiny_model("lstm", "attentive").eval(), 4, 9)
        with watch(model.eval()):
            assert not fits(model, 4, 9)
        with torch.autocast("cpu", torch.bfloat16):
            assert not fits(model, 4, 9)
        assert fits(model, 4, 9)
        model.target.register_forward_hook(lambda *_: None)
        assert not fits(model, 4, 9)
