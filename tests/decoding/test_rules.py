"""What a model may ask of every search: a first token, <eos> at the limit, tokens that are never written."""

from __future__ import annotations

import math

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from tests.decoding.steppers import Hashed, sentences, slow_beam, speakable, without_end

V, LIMIT = 9, 6


class Ruled:
    """The rules as one would write them down, on top of a model's own log-probabilities."""

    def __init__(self, model: Hashed, limit: int, search: Search) -> None:
        self.model, self.limit, self.search = model, limit, search

    def log_probabilities(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        only = None
        if not prefix and self.search.first is not None:
            only = self.search.first
        if self.search.close and len(prefix) + 1 == self.limit:
            only = EOS
        if only is not None:
            return [0.0 if token == only else -math.inf for token in range(V)]
        logits = self.model.table[sentence, self.model.place(prefix)].clone()
        logits[list(self.search.never)] = -math.inf
        return speakable(logits)


RULES = [{"first": 7}, {"close": True}, {"never": (4, 8)}, {"first": 5, "close": True, "never": (6,)}]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_rules_as_written_down(beam, rules):
    count, ends = 12, set()
    model, search = Hashed(count, V, 3), Search(beam=beam, n_best=1, alpha=0.7 if beam > 1 else 1.0, **rules)
    limits = [1 + n % LIMIT for n in range(count)]
    found = decode(model, sentences(*range(count)), limits, search)
    for sentence, (limit, (best,)) in enumerate(zip(limits, found, strict=True)):
        ((score, tokens, log_probability), *_) = slow_beam(
            Ruled(model, limit, search), sentence, limit, beam, search.alpha
        )
        assert best.tokens == without_end(tokens)
        assert best.log_probability == pytest.approx(log_probability, abs=1e-5)
        if beam > 1:
            assert best.score == pytest.approx(score, abs=1e-5)
        ends.add(tokens[-1] == EOS)
        assert not set(best.tokens) & set(search.never)
        assert search.first is None or best.tokens[:1] in ((search.first,), ())
    assert ends == {True} if search.close else len(ends) == 2


def test_samples_obey_too():
    search = Search(sample=True, n_best=40, first=7, never=(4,), close=True)
    for walk in decode(Hashed(1, V, 1), sentences(0), [4], search)[0]:
        assert walk.tokens[0] == 7
        assert 4 not in walk.tokens
        assert len(walk.tokens) <= 3


def test_without_rules_nothing_changes():
    model = Hashed(4, V, 2)
    plain, ruled = (
        decode(model, sentences(*range(4)), [5] * 4, search) for search in (Search(beam=3), Search(beam=3, never=()))
    )
    assert plain == ruled
    assert torch.isfinite(torch.tensor([one[0].score for one in plain])).all()
