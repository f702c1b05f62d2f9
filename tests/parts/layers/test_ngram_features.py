"""Words with their neighbours: which n-grams a place has, what padding and what comes later may not change."""

from __future__ import annotations

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.parts.layers.ngram_features import NgramFeatures, embed_with_ngrams, ngram_features

IDS = torch.tensor([[5, 6, 7, 5, 6, 2], [6, 5, 2, 0, 0, 0]])


def made(longest: int = 3, buckets: int = 1 << 16) -> NgramFeatures:
    module = NgramFeatures(longest, buckets, 4).double()
    torch.manual_seed(1)
    torch.nn.init.normal_(module.table.weight)
    return module


def test_an_n_gram_has_one_place_wherever_it_stands():
    pairs, triples = made().rows(IDS)
    assert pairs[0, 1] == pairs[0, 4]  # 5 6
    assert pairs[0, 1] != pairs[1, 1]  # 6 5 is another
    assert pairs[0, 0] != pairs[0, 3]  # 5 at the beginning, 5 after 7
    assert len({int(place) for place in (triples[0, 2], triples[0, 3], triples[0, 4], triples[1, 2])}) == 4
    assert triples.min() >= 0
    assert triples.max() < 1 << 16


def test_the_sum_of_what_ends_at_a_place():
    module = made()
    pairs, triples = module.rows(IDS)
    torch.testing.assert_close(module(IDS), module.table.weight[pairs] + module.table.weight[triples])


def test_neither_padding_nor_what_follows_changes_a_place():
    module = made()
    for length in range(1, 6):
        torch.testing.assert_close(module(IDS[:, :length]), module(IDS)[:, :length], rtol=0, atol=0)


def test_places_spread_over_all_buckets():
    """Of 40,000 pairs of 200 words in 4,096 buckets, at least as evenly as by chance, 9.8 ± 3.1 each."""
    left, right = torch.meshgrid(torch.arange(200), torch.arange(200), indexing="ij")
    found = NgramFeatures(2, 4096, 1).rows(torch.stack([left.flatten(), right.flatten()], 1))[0, :, 1]
    counts = found.bincount(minlength=4096).double()
    assert counts.min() > 0
    assert counts.std() < 1.05 * (40_000 / 4096) ** 0.5


def test_at_first_they_say_nothing():
    words = torch.nn.Embedding(9, 4)
    assert ngram_features(1, 100, 4) is None
    torch.testing.assert_close(embed_with_ngrams(IDS, words, None), words(IDS))
    torch.testing.assert_close(embed_with_ngrams(IDS, words, ngram_features(2, 100, 4)), words(IDS))
    for wrong in ((0, 100), (2, 0)):
        with pytest.raises(SeqloomError, match="grams and buckets are at least 1"):
            ngram_features(*wrong, 4)
