"""The ambiguous words of `saw`: one vector at a time cannot tell, a window can within its width, the others can."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.build import build
from seqloom.data.datasets import catalog
from seqloom.data.datasets.synthetic.ambiguous_words import DISTANCES, word_and_distance
from seqloom.models.encoders import ENCODERS
from seqloom.parts.layers.embedding import embedding_of


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
    sentences = list(catalog.find("saw").examples(split))
    rows = [torch.tensor([numbers.setdefault(word, len(numbers)) for word, _ in one]) for one in sentences]
    places = torch.tensor([word_and_distance(one) for one in sentences])
    label = torch.tensor([one[at][1] == "NOUN" for one, at in zip(sentences, places[:, 0], strict=True)]).long()
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
    found = right({"kind": "window", "window": window, "dim": 64}, 150)
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
    found = right(encoder, 120)
    assert min(found.values()) > 0.9
