"""Searching with several models at once, against searches that are slow and obviously right."""

from __future__ import annotations

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.decoding.beam import beam_search
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.models.ensemble import StepperEnsemble
from tests.decoding.steppers import every_string, slow_beam, slow_greedy, speakable
from tests.decoding.test_beam import random_model, same
from tests.laws import source_rows


class Averaged:
    """Models asked from the beginning for each prefix, one sentence at a time; the mean of what they say."""

    def __init__(self, models, source):
        self.models, self.source = models, source

    @torch.no_grad()
    def log_probabilities(self, sentence, prefix):
        one = self.source.part(sentence, sentence + 1)
        said = [model(one, torch.tensor([[BOS, *prefix]]))[0, -1].softmax(-1) for model in self.models]
        return speakable((sum(said) / len(said)).log())


@pytest.fixture
def both():
    return [random_model("rnn"), random_model("transformer")]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_strings(both, alpha):
    source = source_rows()
    slow = Averaged(both, source)
    wanted = [every_string(slow, sentence, 3, alpha) for sentence in range(3)]
    found = beam_search(StepperEnsemble(both), source, [3, 3, 3], len(wanted[0]), alpha)
    for one, strings in zip(found, wanted, strict=True):
        assert len(strings) == 156
        same(one, strings)


def test_narrow_beams_and_greedy_search_like_the_slow_ones(both):
    model, source, limits = StepperEnsemble(both), source_rows(), [6, 4, 7]
    slow = Averaged(both, source)
    for width, alpha in ((2, 1.0), (4, 0.6)):
        found = beam_search(model, source, limits, width, alpha)
        for sentence in range(3):
            same(found[sentence], slow_beam(slow, sentence, limits[sentence], width, alpha))
    for sentence, (one,) in enumerate(decode(model, source, limits, Search())):
        assert one.tokens == slow_greedy(slow, sentence, limits[sentence])[0]


def test_samples_do_not_depend_on_the_batch(both):
    model, source, search = StepperEnsemble(both), source_rows(), Search(sample=True, n_best=3)
    whole = [[one.tokens for one in several] for several in decode(model, source, [6, 4, 7], search)]
    for row, limit in enumerate([6, 4, 7]):
        (alone,) = decode(model, source.part(row, row + 1), [limit], search, [row])
        assert [one.tokens for one in alone] == whole[row]


def test_samples_come_from_the_mean(both):
    """At the first step, over many draws."""
    source, draws = source_rows(), 4000
    found = decode(StepperEnsemble(both), source, [1, 1, 1], Search(sample=True, n_best=draws))
    for sentence, several in enumerate(found):
        wanted = torch.tensor(Averaged(both, source).log_probabilities(sentence, ())).exp()
        for token in range(4, len(wanted)):
            share = sum(one.tokens == (token,) for one in several) / draws
            assert share == pytest.approx(float(wanted[token]), abs=0.04)
