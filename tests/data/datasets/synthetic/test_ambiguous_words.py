"""The ambiguous words: pairs that differ in one word and its consequence, at every distance alike."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

from seqloom.data.datasets import catalog
from seqloom.data.datasets.synthetic.ambiguous_words import DETERMINERS, DISTANCES, PRONOUNS, WORDS, word_and_distance

SPLITS = ("train", "valid", "test")


def sentences(split):
    return list(catalog.find("saw").examples(split))


def test_pairs_differ_in_the_word_that_decides_and_in_the_tag_alone():
    every = sentences("test")
    for noun, verb in zip(every[::2], every[1::2], strict=True):
        at, distance = word_and_distance(noun)
        assert word_and_distance(verb) == (at, distance)
        assert len(noun) == len(verb)
        assert [place for place in range(len(noun)) if noun[place] != verb[place]] == [at - distance, at]
        assert noun[at][0] == verb[at][0] in WORDS
        assert (noun[at][1], verb[at][1]) == ("NOUN", WORDS[noun[at][0]])
        assert noun[at - distance][0] in DETERMINERS
        assert verb[at - distance][0] in PRONOUNS


def test_nothing_between_decides_and_every_distance_is_as_frequent():
    counts = Counter()
    for sentence in sentences("train"):
        at, distance = word_and_distance(sentence)
        counts[distance] += 1
        assert not {word for word, _ in sentence[at - distance + 1 : at]} & {*DETERMINERS, *PRONOUNS, *WORDS}
    assert set(counts) == set(DISTANCES)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_no_sentence_is_there_twice_and_other_words_have_one_tag():
    every = [tuple(sentence) for split in SPLITS for sentence in sentences(split)]
    assert len(set(every)) == len(every) == 10_000
    tags = defaultdict(set)
    for sentence in every:
        for word, tag in sentence:
            tags[word].add(tag)
    assert {word for word, several in tags.items() if len(several) > 1} == set(WORDS) | {"as", "to"}


def test_it_never_changes():
    """If this fails, everybody's scores on it mean something else: raise `registry.LAYOUT` and say so."""
    assert hashlib.sha256(repr(sentences("test")).encode()).hexdigest()[:8] == "c49b152a"
