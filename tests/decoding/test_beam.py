"""Greedy and beam search against searches that are slow and obviously right."""

import random

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.beam import beam_search
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from tests.decoding.steppers import (
    Hashed,
    Recomputing,
    every_string,
    sentences,
    slow_beam,
    slow_greedy,
    without_end,
)
from tests.laws import FAST, decoder_choices, encoder_choices, shake, source_rows, tensors, tiny_model

V = 8


def same(found, wanted, bound=1e-5):
    """Hypotheses of one sentence beside [(score, tokens, log-probability)]."""
    assert [one.tokens for one in found] == [without_end(tokens) for _, tokens, _ in wanted]
    assert [one.score for one in found] == pytest.approx([score for score, _, _ in wanted], abs=bound)
    assert [one.log_probability for one in found] == pytest.approx([p for _, _, p in wanted], abs=bound)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("width", [2, 3, 7])
def test_beam_is_the_slow_beam_one_sentence_at_a_time(width, alpha):
    for seed in range(6):
        model, draw = Hashed(3, V, seed), random.Random(seed)
        for sentence in range(3):
            limit = draw.randint(1, 9)
            (found,) = beam_search(model, sentences(sentence), [limit], width, alpha)
            same(found, slow_beam(model, sentence, limit, width, alpha))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_sentence_gets_the_same_answer_in_any_batch(width, alpha):
    """Sentences finish at different times; neither their leaving nor their staying changes what is found."""
    for seed in range(4):
        count, draw = 24, random.Random(seed)
        model = Hashed(count, V, seed)
        limits = [draw.randint(1, 12) for _ in range(count)]
        together = beam_search(model, sentences(*range(count)), limits, width, alpha)
        for sentence, (found, limit) in enumerate(zip(together, limits, strict=True)):
            same(found, slow_beam(model, sentence, limit, width, alpha))


@pytest.mark.parametrize("others", [0, 1, 15])
def test_done_is_done_in_any_company(others):
    """<eos> at once is ahead now, so the search stops. Going on would find better by length, if neighbours that are
    not done made it go on: then the answer would depend on them."""
    model = Hashed(1 + others, V, 9)
    model.table[1:, :, EOS] = -50.0
    model.table[0] = -50.0
    model.table[0, model.place(()), [EOS, 4]] = torch.tensor([0.0, -0.3])
    for length in range(1, 5):
        model.table[0, model.place((4,) * length), 4 if length < 4 else EOS] = 0.0
    found = beam_search(model, sentences(*range(1 + others)), [9] * (1 + others), 1, 1.0)
    assert found[0][0].tokens == ()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_strings(alpha):
    """Width as large as the number of strings: nothing is ever dropped, so the order is that of enumeration."""
    for seed in range(5):
        model = Hashed(1, 7, seed)
        wanted = every_string(model, 0, 4, alpha)
        assert len(wanted) == 1 + 3 + 9 + 27 + 81
        (found,) = beam_search(model, sentences(0), [4], len(wanted), alpha)
        same(found, wanted)


def test_no_beam_beats_the_best_of_all_strings():
    for seed in range(5):
        model = Hashed(1, 6, seed)
        best = every_string(model, 0, 4, 0.0)[0]
        for width in (2, 5, 20):
            assert beam_search(model, sentences(0), [4], width, 0.0)[0][0].score <= best[0] + 1e-5


def test_width_one_is_greedy():
    count = 20
    model, limits = Hashed(count, V, 1), [n % 9 + 1 for n in range(count)]
    source = sentences(*range(count))
    narrow = beam_search(model, source, limits, 1, 1.0)
    for sentence, (one, walked) in enumerate(zip(narrow, decode(model, source, limits, Search()), strict=True)):
        tokens, log_p = slow_greedy(model, sentence, limits[sentence])
        assert [one[0].tokens, walked[0].tokens] == [tokens, tokens]
        assert [one[0].log_probability, walked[0].log_probability] == pytest.approx([log_p, log_p], abs=1e-5)
        assert walked[0].score == walked[0].log_probability


def test_n_best_is_sorted_without_repeats():
    model = Hashed(4, V, 3)
    for found in decode(model, sentences(0, 1, 2, 3), [8] * 4, Search(beam=5, n_best=4)):
        assert len(found) == 4
        assert len({one.tokens for one in found}) == 4
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_score_is_log_probability_by_length_with_its_end_counted():
    model = Hashed(2, V, 4)
    for alpha in (0.5, 1.0):
        for found in beam_search(model, sentences(0, 1), [9, 9], 4, alpha):
            for one in found:
                ended = len(one.tokens) < 9
                assert one.score == pytest.approx(one.log_probability / (len(one.tokens) + ended) ** alpha, rel=1e-5)


def test_limits_are_each_sentences_own():
    count = 12
    model = Hashed(count, V, 5)
    model.table[:, :, EOS] = -50.0  # nothing ends by itself
    limits = list(range(1, count + 1))
    for search in (Search(), Search(beam=3), Search(sample=True)):
        found = decode(model, sentences(*range(count)), limits, search)
        assert [len(answer[0].tokens) for answer in found] == limits


def test_an_end_at_once_is_an_empty_answer():
    model = Hashed(2, V, 5)
    model.table[:, :, EOS] = 50.0
    for search in (Search(), Search(beam=3), Search(sample=True)):
        assert [answer[0].tokens for answer in decode(model, sentences(0, 1), [5, 5], search)] == [(), ()]


def test_pad_and_bos_are_never_written():
    model = Hashed(6, V, 6)
    model.table[:, :, [PAD, BOS, UNK]] = 50.0
    plain = Hashed(6, V, 6)
    source, limits = sentences(*range(6)), [7] * 6
    for search in (Search(), Search(beam=4, n_best=4), Search(sample=True, n_best=5), Search(sample=True, top_k=2)):
        found = decode(model, source, limits, search)
        assert not any({PAD, BOS, UNK} & set(one.tokens) for answer in found for one in answer)
        # Their mass goes to the others: it is as if they had never had any.
        plain.table[:, :, [PAD, BOS, UNK]] = -50.0
        assert [[one.tokens for one in answer] for answer in found] == [
            [one.tokens for one in answer] for answer in decode(plain, source, limits, search)
        ]


@FAST
def test_finished_sentences_leave():
    """Most end at once, one goes on: the rows that are stepped become few."""
    count = 16
    model = Hashed(count, V, 7)
    model.table[:, :, EOS] = 50.0
    model.table[0, :, EOS] = -50.0
    for search, width in ((Search(), 1), (Search(beam=3), 3)):
        rows = []
        step = model.step
        model.step = lambda tokens, state, step=step, rows=rows: rows.append(len(tokens)) or step(tokens, state)
        decode(model, sentences(*range(count)), [10] * count, search)
        model.step = step
        assert rows[0] == count * width
        assert rows[-1] == width


FAMILIES = {
    "rnn": ("rnn", {"kind": "recurrent", "cell": "rnn"}),
    "lstm": ("lstm", {"kind": "recurrent", "cell": "lstm"}),
    "gru-attention": ("gru", {"kind": "attentive", "cell": "gru", "query": "previous", "score": "additive"}),
    "lstm-attention": ("lstm", {"kind": "attentive", "cell": "lstm", "score": "general"}),
    "lstm-attention-feeding": ("lstm", {"kind": "attentive", "cell": "lstm", "input_feeding": True}),
    "transformer": ("transformer", {"kind": "transformer"}),
    "transformer-rotary": ("transformer", {"kind": "transformer", "position": "rotary", "norm": "after"}),
    "lstm-to-transformer": ("lstm", {"kind": "transformer", "position": "learned"}),
    "transformer-to-gru": ("transformer", {"kind": "attentive", "cell": "gru"}),
}


def random_model(family):
    torch.manual_seed(0)
    model = shake(tiny_model(*FAMILIES[family]).double(), 3)
    with torch.no_grad():
        model.output.weight.mul_(3.0)  # sure of itself, but not always of the same token
        model.output.bias[EOS] += 0.5
    return model


@pytest.mark.parametrize("family", list(FAMILIES))
def test_models_of_every_family_search_like_the_slow_search(family):
    model, source, limits = random_model(family), source_rows(), [6, 4, 7]
    slow = Recomputing(model, source)
    for width, alpha in ((2, 1.0), (4, 0.6)):
        found = beam_search(model, source, limits, width, alpha)
        for sentence in range(3):
            same(found[sentence], slow_beam(slow, sentence, limits[sentence], width, alpha))
    for sentence, (one,) in enumerate(decode(model, source, limits, Search())):
        tokens, log_p = slow_greedy(slow, sentence, limits[sentence])
        assert one.tokens == tokens
        assert one.log_probability == pytest.approx(log_p, abs=1e-5)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_gpu_finds_what_the_cpu_finds(family):
    """There the host looks only now and then who has finished; it must not show."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    here, there = random_model(family), random_model(family).to("cuda")
    source, limits = source_rows(), [20, 4, 12]
    for search in (Search(), Search(beam=4, n_best=3)):
        wanted = decode(here, source, limits, search)
        found = decode(there, source.to("cuda"), limits, search)
        for one, other in zip(found, wanted, strict=True):
            assert [answer.tokens for answer in one] == [answer.tokens for answer in other]
            assert [answer.score for answer in one] == pytest.approx([answer.score for answer in other], abs=1e-5)


@pytest.mark.parametrize("decoder", decoder_choices()[::4], ids=str)
def test_the_source_is_never_expanded(decoder, monkeypatch):
    """What was read has a row for each sentence, however many hypotheses there are."""
    torch.manual_seed(0)
    model = shake(tiny_model(encoder_choices()[1], decoder), 1)
    step, seen = model.step, []

    def checking(tokens, state):
        alive = {part.size(0) for part in tensors(state.context)}
        assert len(alive) == 1
        seen.append((tokens.size(0), alive.pop()))
        return step(tokens, state)

    monkeypatch.setattr(model, "step", checking)
    for search in (Search(beam=4), Search(sample=True, n_best=4)):
        seen.clear()
        decode(model, source_rows(), [6, 4, 7], search)
        assert seen[0] == (12, 3)
        assert all(rows == 4 * read for rows, read in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "at least 1, here 0 and 1"),
        ({"n_best": 0}, "at least 1, here 1 and 0"),
        ({"beam": 2, "n_best": 3}, "n-best 3 needs a beam at least as wide, here 2"),
        ({"beam": 2, "sample": True}, "a beam or sampling, not both"),
        ({"temperature": -1.0}, "at least 0"),
        ({"top_k": -1}, "at least 0"),
        ({"top_p": 0.0}, "top-p lies above 0"),
        ({"top_p": 1.1}, "top-p lies above 0"),
    ],
)
def test_a_search_that_makes_no_sense(options, message):
    with pytest.raises(SeqloomError, match=message):
        Search(**options)
