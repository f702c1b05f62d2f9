"""Looking up the first block's input equals computing it."""

import pytest
import torch

from seqloom.acceleration import plain
from seqloom.data.batches.collate import pad
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.fast.decoding import first_block, token_table
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


def outputs(made, width=1, steps=20, state=None):
    """Logits of some steps with random tokens and hypotheses, and whether the table was used."""
    generator, found = torch.Generator().manual_seed(0), []
    state = state or made.start(SOURCE, width=width, room=steps)
    tokens = torch.ones(3 * width, 1, dtype=torch.long)
    for _ in range(steps):
        logits, state = made.step(tokens, state)
        found.append(logits)
        tokens = torch.randint(0, made.output.out_features, tokens.shape, generator=generator)
        own = torch.randint(0, width, (3, width), generator=generator)
        state = state.pick((torch.arange(3)[:, None] * width + own).flatten())
    return torch.cat(found, 1), getattr(state.context, "first_block", None) is not None


def near(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("options", [{}, {"norm": "after"}, {"position": "none"}, {"embedding_norm": True}], ids=str)
@torch.no_grad()
def test_looked_up_is_computed(width, options, monkeypatch):
    made = model(**options)
    fast, looked = outputs(made, width)
    monkeypatch.setattr(token_table, "first_block_table", lambda *_: None)
    computed, also_looked = outputs(made, width)
    assert (looked, also_looked) == (True, False)
    near(fast, computed)


@torch.no_grad()
def test_positions_beyond_the_table(monkeypatch):
    made = model()
    looked_up, _ = outputs(made)
    monkeypatch.setattr(first_block, "MAX_POSITIONS", 16)
    near(outputs(made)[0], looked_up)


@pytest.mark.parametrize("name", ["target.weight", "decoder.blocks.0.mix.project.weight", "decoder.enter.norm.bias"])
@torch.no_grad()
def test_changed_weights_make_a_new_table(name):
    """Also when torch's version counter does not change, as with fused optimizers."""
    made = model(embedding_norm=True)
    before, _ = outputs(made)
    weights = dict(made.named_parameters())[name]
    weights.data.numpy()[...] *= -1.5
    after, _ = outputs(made)
    assert (after - before).abs().max() > 1e-3
    first_block._tables.clear()
    near(outputs(made)[0], after)


@torch.no_grad()
def test_unsupported():
    """Large vocabulary, rotary or learned positions, double precision, hooks."""
    others = [model(first_block.MAX_TOKENS + 1), model(position="rotary"), model(position="learned"), model().double()]
    hooked = model()
    hooked.target.register_forward_hook(lambda *_: None)
    for made in (*others, hooked):
        assert not outputs(made, steps=2)[1]


@torch.no_grad()
def test_probes_see_the_same():
    made = model()
    fast, _ = outputs(made)
    for state in (None, made.start(SOURCE, room=20)):  # also one that was begun without probes
        with watch(made) as seen:
            watched, looked = outputs(made, state=state)
        assert looked == (state is not None)
        near(watched, fast)
        assert all(reports for name, reports in seen.items() if name.startswith("decoder"))


@torch.no_grad()
def test_a_state_goes_on_under_plain():
    made = model()
    fast, _ = outputs(made)
    state = made.start(SOURCE, room=20)
    with plain():
        found, looked = outputs(made, state=state)
        plainly, not_looked = outputs(made)
    assert (looked, not_looked) == (True, False)
    near(found, fast)
    near(plainly, fast)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_same_is_found(beam, monkeypatch):
    made, search = model(), Search(beam=beam, n_best=beam)
    fast = decode(made, SOURCE, [12] * 3, search)
    monkeypatch.setattr(token_table, "first_block_table", lambda *_: None)
    computed = decode(made, SOURCE, [12] * 3, search)
    assert [[one.tokens for one in found] for found in fast] == [[one.tokens for one in found] for found in computed]
