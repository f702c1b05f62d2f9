"""The ambiguous words: pairs that differ in one word and its consequence, at every distance alike; and who can tell."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.data import registry
from seqloom.data.saw import DETERMINERS, DISTANCES, PRONOUNS, WORDS, asked
from seqloom.models.encoders import ENCODERS
from seqloom.parts.choose import build
from seqloom.parts.embedding import embedding_of

SPLITS = ("train", "valid", "test")


def sentences(split):
    return list(registry.find("saw").examples(split))


def test_pairs_differ_in_the_word_that_decides_and_in_the_tag_alone():
    every = sentences("test")
    for noun, verb in zip(every[::2], every[1::2], strict=True):
        at, distance = asked(noun)
        assert asked(verb) == (at, distance)
        assert len(noun) == len(verb)
        assert [place for place in range(len(noun)) if noun[place] != verb[place]] == [at - distance, at]
        assert noun[at][0] == verb[at][0] in WORDS
        assert (noun[at][1], verb[at][1]) == ("NOUN", WORDS[noun[at][0]])
        assert noun[at - distance][0] in DETERMINERS
        assert verb[at - distance][0] in PRONOUNS


def test_nothing_between_decides_and_every_distance_is_as_frequent():
    counts = Counter()
    for sentence in sentences("train"):
        at, distance = asked(sentence)
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
    assert hashlib.sha256(repr(sentences("test")).encode()).hexdigest()[:8] == "0"


class Guess(nn.Module):
    """Noun or not, from the state at the word."""

    def __init__(self, words: int, encoder) -> None:
        super().__init__()
        self.source = embedding_of(words, 32)
        self.encoder = build(ENCODERS, encoder, input_dim=32)
        self.score = nn.Linear(self.encoder.dim, 2)

    def forward(self, tokens, lengths, at):
        states = self.encoder(self.source(tokens), lengths).states
        return self.score(states[torch.arange(len(at)), at])


def numbered(split, numbers):
    rows = [torch.tensor([numbers.setdefault(word, len(numbers)) for word, _ in one]) for one in sentences(split)]
    places = torch.tensor([asked(one) for one in sentences(split)])
    label = torch.tensor([one[at][1] == "NOUN" for one, at in zip(sentences(split), places[:, 0], strict=True)]).long()
    return nn.utils.rnn.pad_sequence(rows, True), torch.tensor([len(row) for row in rows]), *places.unbind(1), label


def right(encoder, steps) -> dict[int, float]:
    """The share of the words that is guessed right, by distance."""
    torch.manual_seed(1)
    numbers: dict[str, int] = {}
    tokens, lengths, at, _, label = numbered("train", numbers)
    model = Guess(len(numbers), encoder)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        rows = torch.randint(0, len(at), (128,))
        loss = F.cross_entropy(model(tokens[rows], lengths[rows], at[rows]), label[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    tokens, lengths, at, distance, label = numbered("test", numbers)
    with torch.no_grad():
        hit = (model(tokens, lengths, at).argmax(-1) == label).float()
    return {d: float(hit[distance == d].mean()) for d in DISTANCES}


def test_one_vector_at_a_time_cannot():
    found = right({"kind": "window", "window": 1, "dim": 32}, 200)
    assert all(share == pytest.approx(0.5, abs=0.05) for share in found.values())


@pytest.mark.parametrize("window", [3, 11])
def test_a_window_can_within_its_width(window):
    found = right({"kind": "window", "window": window, "dim": 64}, 300)
    for distance, share in found.items():
        assert share > 0.98 if distance <= window // 2 else share == pytest.approx(0.5, abs=0.12), distance


@pytest.mark.parametrize(
    "encoder",
    [
        {"kind": "lstm", "dim": 32},
        {"kind": "transformer", "dim": 64, "layers": 2, "heads": 2, "hidden": 64, "dropout": 0.0},
    ],
    ids=["lstm", "attention"],
)
def test_an_lstm_and_attention_can_at_any_distance(encoder):
    found = right(encoder, 600)
    assert min(found.values()) > 0.9
