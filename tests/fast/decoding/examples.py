"""Calls by which fast decoding is compared with the textbook."""

from __future__ import annotations

from functools import partial

import torch

from seqloom.acceleration import plain_of
from seqloom.decoding.greedy import most_likely
from seqloom.decoding.random_draws import Draws
from seqloom.decoding.sampling import sampler
from seqloom.decoding.search_options import Search
from seqloom.fast.decoding import token_table, transformer
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.protocols import Encoded
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.state import Decoding
from tests.decoding.steppers import Hashed, sentences
from tests.fast.twin_law import Call, call
from tests.laws import LENGTHS, close, drawn, shake, source_rows, tiny_model

MOVES = torch.tensor([1, 0, 3, 2, 4, 4])
PADDED = Encoded(states=drawn(3, 6, 8), lengths=torch.tensor(LENGTHS), summary=drawn(3, 8))
SHORT = Encoded(states=drawn(3, 4, 8), lengths=None, summary=drawn(3, 8))


def decoder_of(**options) -> TransformerDecoder:
    torch.manual_seed(0)
    made = TransformerDecoder(5, 8, (), dim=8, layers=2, heads=2, hidden=12, **options)
    return shake(made.double(), 1).eval()


def steps(decoder: TransformerDecoder, state: Decoding, width: int) -> list[torch.Tensor]:
    """A few steps in which hypotheses change places; then the first sentence leaves."""
    rows, found = MOVES if width == 2 else torch.arange(3), []
    for number in range(3):
        y, state = decoder(drawn(3 * width, 1, 5, seed=number), state)
        found.append(y)
        state = state.pick(rows)
    state = state.pick(torch.arange(width, 3 * width), torch.tensor([1, 2]))
    return [*found, decoder(drawn(2 * width, 1, 5, seed=9), state)[0]]


@torch.no_grad()
def begun(encoded: Encoded, width: int, room: int | None = 6, **options) -> Call:
    decoder = decoder_of(**options)

    @torch.no_grad()
    def same(found: Decoding, wanted: Decoding) -> None:
        close(steps(decoder, found, width), steps(decoder, wanted, width))

    return call(decoder, encoded, width, room, grad=False, same=same)


def first_equal(found: tuple, wanted: tuple) -> None:
    close([found[0]], [wanted[0]], 1e-5)


@torch.no_grad()
def stepping(encoded: Encoded, width: int, x: torch.Tensor, **options) -> Call:
    decoder = decoder_of(**options)
    state = transformer.begin(decoder, encoded, width, 6)
    plain_state = plain_of(TransformerDecoder.begin)(decoder, encoded, width, 6)
    return call(
        decoder, x, state, plain=lambda: call(decoder, x, plain_state, grad=False), grad=False, same=first_equal
    )


def small_model() -> Seq2Seq:
    torch.manual_seed(0)
    return shake(tiny_model("transformer", {"kind": "transformer"}), 1).eval()


@torch.no_grad()
def started(width: int) -> Call:
    model = small_model()
    tokens = torch.arange(3 * width)[:, None] % 5 + 1

    @torch.no_grad()
    def same(found: Decoding, wanted: Decoding) -> None:
        for state in (found, wanted):
            assert (getattr(state.context, "first_block", None) is not None) == (state is found)
        for _ in range(3):
            (one, found), (other, wanted) = model.step(tokens, found), model.step(tokens, wanted)
            close([one], [other], 1e-5)

    return call(model, source_rows(), width=width, room=6, grad=False, same=same)


@torch.no_grad()
def looked_up(width: int) -> Call:
    model, tokens = small_model(), torch.arange(3 * width)[:, None] % 5 + 1
    state = token_table.start(model, source_rows(), width=width, room=6)
    plain_state = plain_of(TransformerDecoder.begin)(model.decoder, model.read(source_rows()), width, 6)  # pyright: ignore
    return call(
        model, tokens, state, plain=lambda: call(model, tokens, plain_state, grad=False), grad=False, same=first_equal
    )


def same_answers(found: list, wanted: list) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert [answer.tokens for answer in one] == [answer.tokens for answer in other]
        for part in ("score", "log_probability"):
            ours, theirs = ([getattr(answer, part) for answer in answers] for answers in (one, other))
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-5)


LIMITS = [9, 3, 12, 7, 1, 12, 6, 10, 4, 12, 11, 8]


def searched(width: int, alpha: float, **options) -> Call:
    source = sentences(*range(len(LIMITS)))
    return call(
        Hashed(len(LIMITS), 9, 3), source, LIMITS, width, alpha, Search(**options), grad=False, same=same_answers
    )


def stepwise(width: int, **options) -> Call:
    source, search = sentences(*range(len(LIMITS))), Search(**options)
    streams = [(index, sample) for index in range(len(LIMITS)) for sample in range(width)]
    choose = sampler(search, Draws(7, streams, "cpu")) if search.sample else most_likely
    return call(Hashed(len(LIMITS), 9, 3), source, LIMITS, choose, width, search=search, grad=False, same=same_answers)


HOME = "seqloom.models.decoders.transformer.TransformerDecoder"
EXAMPLES = {
    f"{HOME}.begin": [
        *(partial(begun, encoded, width) for encoded in (PADDED, SHORT) for width in (1, 2)),
        *(partial(begun, PADDED, 2, score=score) for score in ("general", "additive")),
        *(partial(begun, SHORT, 2, position=position, norm="after") for position in ("rotary", "alibi")),
        partial(begun, PADDED, 2, None),
    ],
    f"{HOME}.forward": [
        *(partial(stepping, encoded, 2, drawn(6, 1, 5)) for encoded in (PADDED, SHORT)),
        *(partial(stepping, PADDED, 2, drawn(6, 3, 5), score=score) for score in ("scaled", "additive")),
        partial(stepping, PADDED, 2, drawn(3, 1, 5).repeat_interleave(2, 0), position="rotary"),
        partial(stepping, SHORT, 1, drawn(3, 2, 5)),
    ],
    "seqloom.models.seq2seq.Seq2Seq.start": [partial(started, 1), partial(started, 2)],
    "seqloom.models.seq2seq.Seq2Seq.step": [partial(looked_up, 1), partial(looked_up, 2)],
    "seqloom.decoding.beam.beam_search": [
        partial(searched, 3, 1.0),
        partial(searched, 1, 0.0),
        partial(searched, 5, 0.6, first=5, close=True, never=(6,)),
    ],
    "seqloom.decoding.greedy.decode_stepwise": [
        partial(stepwise, 1),
        partial(stepwise, 1, first=5, close=True, never=(6,)),
        partial(stepwise, 3, sample=True, temperature=0.7, top_k=4),
    ],
}
