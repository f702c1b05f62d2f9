"""Looking up what the first block takes in is making it."""

import pytest
import torch

from seqloom.data.batches.collate import pad
from seqloom.decoding.options import Search
from seqloom.decoding.search import decode
from seqloom.fast.decoding import first_block as parts
from seqloom.models.decoders import transformer
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.probe import watch

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
SOURCE = pad([[4, 5, 6, 7], [5, 2], [7, 7, 2]])


def model(size=11, **options):
    torch.manual_seed(0)
    stack = {"kind": "transformer", "dim": 16, "layers": 2, "heads": 2, "hidden": 24}
    made = Seq2Seq(9, size, stack, {**stack, **options}, embedding=options.pop("embedding", 16)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def said(made, width=1, steps=20):
    """The logits of some steps, with tokens and hypotheses of our own choice, and whether they were looked up."""
    generator, found = torch.Generator().manual_seed(0), []
    state = made.start(SOURCE, width=width, room=steps)
    tokens = torch.ones(3 * width, 1, dtype=torch.long)
    for _ in range(steps):
        logits, state = made.step(tokens, state)
        found.append(logits)
        tokens = torch.randint(0, made.output.out_features, tokens.shape, generator=generator)
        own = torch.randint(0, width, (3, width), generator=generator)
        state = state.pick((torch.arange(3)[:, None] * width + own).flatten())
    return torch.cat(found, 1), state.context.first_block is not None


def near(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("options", [{}, {"norm": "after"}, {"position": "none"}, {"embedding_norm": True}], ids=str)
@torch.no_grad()
def test_looked_up_is_made(width, options, monkeypatch):
    made = model(**options)
    quick, looked = said(made, width)
    monkeypatch.setattr(transformer, "entrance", lambda *_: None)
    plain, made_anew = said(made, width)
    assert (looked, made_anew) == (True, False)
    near(quick, plain)


@torch.no_grad()
def test_places_beyond_the_table(monkeypatch):
    made = model()
    plain, _ = said(made)
    monkeypatch.setattr(parts, "REACH", 16)
    near(said(made)[0], plain)


@pytest.mark.parametrize("name", ["target.weight", "decoder.blocks.0.mix.project.weight", "decoder.enter.norm.bias"])
@torch.no_grad()
def test_a_table_of_other_weights_is_not_used(name):
    """Also of weights that were written past torch's count of changes, as fused optimisers do."""
    made = model(embedding_norm=True)
    before, _ = said(made)
    weights = dict(made.named_parameters())[name]
    weights.data.numpy()[...] *= -1.5
    after, _ = said(made)
    assert (after - before).abs().max() > 1e-3
    parts._kept.clear()
    near(said(made)[0], after)


@torch.no_grad()
def test_where_there_is_none():
    """Many tokens, positions that turn or have an end, double precision, hooks."""
    others = [model(parts.TOKENS + 1), model(position="rotary"), model(position="learned"), model().double()]
    listened = model()
    listened.target.register_forward_hook(lambda *_: None)
    for made in (*others, listened):
        assert not said(made, steps=2)[1]


@torch.no_grad()
def test_who_watches_sees_the_same():
    made = model()
    quick, _ = said(made)
    with watch(made) as seen:
        watched, looked = said(made)
    assert looked
    near(watched, quick)
    assert all(seen.values())


@pytest.mark.parametrize("beam", [1, 3])
def test_the_same_is_found(beam, monkeypatch):
    made, search = model(), Search(beam=beam, n_best=beam)
    quick = decode(made, SOURCE, [12] * 3, search)
    monkeypatch.setattr(transformer, "entrance", lambda *_: None)
    plain = decode(made, SOURCE, [12] * 3, search)
    assert [[one.tokens for one in found] for found in quick] == [[one.tokens for one in found] for found in plain]
