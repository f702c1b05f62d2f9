"""The decoding step of a block equals the plain one, and branches equal copied caches."""

from itertools import product

import pytest
import torch

from seqloom.acceleration import plain
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.fast.decoding.beam_cache import BeamCache
from seqloom.fast.decoding.transformer_step import BlockStep, TransformerStep, folding_supported
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.probe import watch
from tests.laws import LENGTHS, close, drawn, heads_of, named, shake, source_rows, tensors, tiny_model

MEMORY = Encoded(states=drawn(3, 6, 8), lengths=torch.tensor(LENGTHS), summary=drawn(3, 8))
FULL = Encoded(states=drawn(3, 6, 8), lengths=None, summary=drawn(3, 8))
SHORT = Encoded(states=drawn(3, 4, 8), lengths=torch.tensor([4, 2, 3]), summary=drawn(3, 8))
SHORT_FULL = Encoded(states=drawn(3, 4, 8), lengths=None, summary=drawn(3, 8))
MOVES = ([1, 0, 3, 2, 4, 4], [0, 0, 2, 3, 5, 4], [1, 1, 3, 3, 4, 5])


def made(**options):
    torch.manual_seed(0)
    decoder = TransformerDecoder(5, 8, (), dim=8, layers=2, heads=2, hidden=12, **options)
    return shake(decoder.double(), 1)


def steps(decoder, encoded, width, room=4, state=None):
    """Outputs of steps with branching hypotheses; in the end the first sentence leaves."""
    state, said = state or decoder.begin(encoded, width, room), []
    for number, rows in enumerate(MOVES):
        y, state = decoder(drawn(3 * width, 1, 5, seed=number), state)
        said.append(y)
        rows = torch.tensor(rows[: 3 * width]) if width > 1 else torch.arange(3)
        state = state.pick(rows)
    rest = torch.arange(width, 3 * width)
    said.append(decoder(drawn(2 * width, 1, 5, seed=9), state.pick(rest, torch.tensor([1, 2])))[0])
    return said


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("encoded", [MEMORY, FULL, SHORT, SHORT_FULL], ids=["padded", "full", "short", "short-full"])
@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize(("position", "score"), [*product(POSITIONS, ["scaled"]), *product(["alibi"], SCORES)])
def test_steps_are_plain_steps(position, score, norm, encoded, width):
    """Modules are called with gradients or probes only. Results are the same."""
    decoder = made(position=position, score=score, norm=norm, activation="gelu" if norm == "after" else "relu")
    with torch.no_grad():
        assert (decoder.begin(encoded, width, 4).context.fused_step is not None) == (
            score not in ("additive", "network")
        )
        folds = decoder.begin(encoded, width, 4).context.folded_memories is not None
        assert folds == (encoded.states.size(1) == 4 and score == "scaled")
        lean = steps(decoder, encoded, width)
        for state in (None, decoder.begin(encoded, width, 4)):  # also one that was begun without probes
            with watch(decoder) as seen:
                watched = steps(decoder, encoded, width, state=state)
            assert all(len(reports) == 4 for reports in seen.values())
            close(lean, watched)
        with plain():
            close(steps(decoder, encoded, width), lean)
    close(steps(decoder, encoded, width, None), lean)


@pytest.mark.parametrize("position", POSITIONS)
def test_equal_hypotheses_are_computed_once(position, monkeypatch):
    """Those that begin with the same token; if one has another token, all are computed."""
    decoder, rows = made(position=position), []
    call = BlockStep.__call__
    monkeypatch.setattr(BlockStep, "__call__", lambda self, x, *rest: rows.append(len(x)) or call(self, x, *rest))

    def said(first, room=4):
        state, found = decoder.begin(MEMORY, 2, room), []
        for x in (first, drawn(6, 1, 5, seed=1), drawn(6, 1, 5, seed=2)):
            y, state = decoder(x, state)
            found.append(y)
            state = state.pick(torch.tensor(MOVES[0]))
        return found

    alike = drawn(3, 1, 5).repeat_interleave(2, 0)
    other = alike.index_add(0, torch.tensor([5]), drawn(1, 1, 5, seed=3))
    with torch.no_grad():
        for first, asked in ((alike, 3), (other, 6)):
            rows.clear()
            lean = said(first)
            assert rows == [asked, asked, 6, 6, 6, 6]
            close(lean, said(first, None))
            with watch(decoder):
                close(lean, said(first))


def test_unsupported_blocks():
    decoder = made()
    assert TransformerStep.of(decoder.blocks) is None  # gradients are on
    with torch.no_grad():
        assert TransformerStep.of(decoder.blocks) is not None
        assert TransformerStep.of(decoder.train().blocks) is None
        assert TransformerStep.of(made(score="additive").blocks) is None
        for unsupported in ({"key_heads": 1}, {"projections": "qv"}, {"normalizer": "relu"}):
            assert TransformerStep.of(made(mixer=heads_of(**unsupported)).blocks) is None
            assert TransformerStep.of(made(cross=heads_of(**unsupported)).blocks) is None
        hooked = made().eval()
        assert isinstance(hooked.begin(MEMORY, 2, 4).rows, BeamCache)
        hooked.blocks[1].mix.register_forward_pre_hook(lambda *_: None)
        assert not isinstance(hooked.begin(MEMORY, 2, 4).rows, BeamCache)


@torch.no_grad()
def test_folding_where_it_is_less_work():
    """Not for long sources, nor for many sentences with one hypothesis each."""
    blocks = made().blocks
    assert folding_supported(blocks, drawn(1, 4, 8), 1)
    assert folding_supported(blocks, drawn(9, 4, 8), 5)
    assert not folding_supported(blocks, drawn(9, 4, 8), 1)
    assert not folding_supported(blocks, drawn(1, 5, 8), 5)
    assert not folding_supported(made(score="general").blocks, drawn(1, 4, 8), 1)


UNSUPPORTED = [
    {"mixer": heads_of(1), "cross": heads_of(1)},
    {"mixer": heads_of(normalizer="relu"), "position": "relative"},
    {"mixer": heads_of(projections="v"), "cross": heads_of(projections="v"), "position": "alibi"},
]


@pytest.mark.parametrize("options", [*({"position": name} for name in POSITIONS), *UNSUPPORTED], ids=named)
@pytest.mark.parametrize("beam", [2, 5])
def test_branches_find_what_copied_caches_find(beam, options, monkeypatch):
    torch.manual_seed(1)
    model = shake(tiny_model("transformer", {"kind": "transformer", **options}).double(), 4)
    search = Search(beam=beam, n_best=beam)
    found = decode(model, source_rows(), [9, 5, 12], search)
    monkeypatch.setattr(BeamCache, "max_width", 0)
    copied = decode(model, source_rows(), [9, 5, 12], search)
    for one, other in zip(found, copied, strict=True):
        assert [answer.tokens for answer in one] == [answer.tokens for answer in other]
        assert [answer.score for answer in one] == pytest.approx([answer.score for answer in other], abs=1e-6)


def test_picking_hypotheses_copies_no_keys():
    """Only leaving sentences make a copy, and a second pick from one state, which must not write into the first."""
    decoder = made()
    with torch.no_grad():
        _, state = decoder(drawn(6, 1, 5), decoder.begin(FULL, 2, 4))
        memory = state.rows.caches[0].keys
        assert memory.shape == (3, 2, 8, 4)
        first, second = state.pick(torch.tensor(MOVES[0])), state.pick(torch.tensor(MOVES[0]))
        assert first.rows.caches[0].keys is memory
        assert second.rows.caches[0].keys is not memory
        left = first.pick(torch.arange(2, 6), torch.tensor([1, 2]))
        assert left.rows.caches[0].keys.size(0) == 2
        assert {part.size(0) for part in tensors(left.context)} == {2}
        # A state that shares its memory and then takes a step does not disturb the other.
        wanted = decoder(drawn(6, 1, 5, seed=2), second)[0]
        decoder(drawn(6, 1, 5, seed=3), state)
        close(decoder(drawn(6, 1, 5, seed=2), first)[0], wanted)


def test_many_steps_at_once_are_single_ones():
    decoder, x = made(position="rotary"), drawn(6, 3, 5)
    with torch.no_grad():
        whole, _ = decoder(x, decoder.begin(FULL, 2, 4))
        state, said = decoder.begin(FULL, 2, 4), []
        for t in range(3):
            y, state = decoder(x[:, t : t + 1], state)
            said.append(y)
    close(torch.cat(said, 1), whole)
