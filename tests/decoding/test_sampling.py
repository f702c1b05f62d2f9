"""Sampling: what is drawn from, how often, and that it can be drawn again."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.decoding.sampling import sampling_distribution
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from tests.decoding.steppers import Hashed, sentences

P = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
V = 8


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0, 10.0])
def test_temperature_is_p_to_the_power_of_one_by_t(temperature):
    wanted = P ** (1 / temperature)
    found = sampling_distribution(P.log(), temperature)
    assert found.tolist()[0] == pytest.approx((wanted / wanted.sum()).tolist()[0], abs=1e-6)


def test_temperature_near_zero_is_greedy():
    assert sampling_distribution(P.log(), 0.01).tolist()[0] == pytest.approx([0.0, 1.0, 0.0, 0.0], abs=1e-6)
    model, source, limits = Hashed(20, V, 1), sentences(*range(20)), [8] * 20
    greedy = decode(model, source, limits, Search())
    assert decode(model, source, limits, Search(sample=True, temperature=0)) == greedy
    # At 0.01 another token is drawn only where the best is ahead by less than a few hundredths.
    near = decode(model, source, limits, Search(sample=True, temperature=0.01))
    assert sum(a[0].tokens == b[0].tokens for a, b in zip(near, greedy, strict=True)) >= 18


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 3}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_k": 4}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_k": 9}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.01}, [0, 1, 0, 0]),
        ({"top_p": 0.39}, [0, 1, 0, 0]),
        ({"top_p": 0.41}, [0, 4 / 7, 0, 3 / 7]),  # the smallest set that holds it
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1.0}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.95, "top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.2, "top_k": 3}, [0, 1, 0, 0]),
    ],
)
def test_top_k_and_top_p_by_hand(options, wanted):
    assert sampling_distribution(P.log(), **options).tolist()[0] == pytest.approx(wanted, abs=1e-6)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 1000),
    temperature=st.floats(0.2, 3.0),
    top_k=st.integers(0, 8),
    top_p=st.floats(0.05, 1.0),
)
def test_what_is_left_is_a_distribution_with_the_likeliest_in_it(seed, temperature, top_k, top_p):
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(seed))
    found, whole = sampling_distribution(logits, temperature, top_k, top_p), (logits / temperature).softmax(-1)
    assert found.sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    assert torch.equal(found.argmax(-1), logits.argmax(-1))
    kept = found > 0
    assert kept.sum(-1).max() <= (top_k or 6)
    for row in range(3):  # no token that was left out is likelier than one that was kept, and ratios stay
        if not kept[row].all():
            assert whole[row][~kept[row]].max() <= whole[row][kept[row]].min()
        ratio = found[row][kept[row]] / whole[row][kept[row]]
        assert ratio.max().item() == pytest.approx(ratio.min().item(), rel=1e-4)


def drawn_tokens(search, draws=4000):
    model = Hashed(1, V, 2, sharp=1.0)
    (found,) = decode(model, sentences(0), [1], search)
    assert len(found) == draws
    # A lone <eos> is an empty answer.
    counts = Counter(one.tokens[0] if one.tokens else 2 for one in found)
    return counts, torch.tensor(model.log_probabilities(0, ()))


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.6}], ids=str
)
def test_frequencies_are_the_probabilities(options):
    counts, log_p = drawn_tokens(Search(sample=True, n_best=4000, seed=1, **options))
    wanted = sampling_distribution(log_p[None], **options)[0]
    possible = wanted > 0
    assert set(counts) <= set(possible.nonzero()[:, 0].tolist())
    square = sum((counts[i] - 4000 * p) ** 2 / (4000 * p) for i, p in enumerate(wanted.tolist()) if p > 0)
    freedom = int(possible.sum()) - 1
    assert square < freedom + 5 * math.sqrt(2 * freedom) + 5


def test_sampling_repeats_from_its_seed():
    model, source, limits = Hashed(5, V, 3), sentences(*range(5)), [9] * 5
    one = decode(model, source, limits, Search(sample=True, n_best=3, seed=1))
    assert decode(model, source, limits, Search(sample=True, n_best=3, seed=1)) == one
    assert decode(model, source, limits, Search(sample=True, n_best=3, seed=2)) != one
    torch.manual_seed(0)
    before = torch.get_rng_state()
    decode(model, source, limits, Search(sample=True, seed=1))
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's random numbers are used up


def test_a_sentence_draws_by_its_place_among_all_that_are_asked():
    model, search = Hashed(5, V, 3), Search(sample=True, n_best=2, seed=1)
    whole = decode(model, sentences(*range(5)), [9, 3, 9, 7, 9], search)
    assert decode(model, sentences(3, 1), [7, 3], search, [3, 1]) == [whole[3], whole[1]]
    assert decode(model, sentences(3), [7], search) != [whole[3]]
    more = decode(model, sentences(3), [7], Search(sample=True, n_best=5, seed=1), [3])
    assert more[0][:2] == whole[3], "the first samples stay when more are asked for"


def test_a_model_that_has_gone_wrong_is_said():
    model = Hashed(2, V, 3)
    model.table[1] = math.nan
    with pytest.raises(SeqloomError, match="scores are not finite"):
        decode(model, sentences(0, 1), [4, 4], Search(sample=True))


def test_samples_of_a_sentence_are_independent_walks_with_the_models_own_probability():
    model = Hashed(2, V, 4)
    for sentence, found in enumerate(decode(model, sentences(0, 1), [6, 6], Search(sample=True, n_best=8))):
        assert len({one.tokens for one in found}) > 1
        for one in found:
            ended = len(one.tokens) < 6
            path = (*one.tokens, 2) if ended else one.tokens
            total = sum(model.log_probabilities(sentence, path[:t])[token] for t, token in enumerate(path))
            assert one.log_probability == pytest.approx(total, abs=1e-4)


def test_temperature_does_not_change_the_probability_that_is_told():
    model = Hashed(1, V, 4)
    (found,) = decode(model, sentences(0), [1], Search(sample=True, n_best=20, temperature=3.0))
    log_p = model.log_probabilities(0, ())
    for one in found:
        assert one.log_probability == pytest.approx(log_p[one.tokens[0] if one.tokens else 2], abs=1e-5)
