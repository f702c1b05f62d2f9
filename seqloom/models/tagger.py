"""N → N: a tag for each word. Any encoder, any way to spell words, a softmax or a chain on top."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.words import Words
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.errors import SeqloomError
from seqloom.models.encoders.characters import SPELLINGS
from seqloom.models.encoders.encoders import ENCODERS
from seqloom.parts.layers.crf import OUTPUTS, Allowed, Softmax
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of


class Found(NamedTuple):
    """The tags that a model finds likeliest."""

    tags: Tensor  # [B, S]
    marginals: Tensor  # [B, S]: log p(this tag at this place)
    likelihood: Tensor  # [B]: log p(all of them), or of the tags that were asked about


class Guessed(NamedTuple):
    """What a model thinks of given tags, and of all others."""

    likelihood: Tensor  # [B]: log p(the tags)
    marginals: Tensor  # [B, S, K]: log p(tag) of each at each place


class Tagger(nn.Module):
    """Words, by their numbers and their characters, through an encoder to the scores of tags (Collobert et al. 2011;
    Huang et al. 2015; Lample et al. 2016; Ma & Hovy 2016).

    `unknown`: in training, a word that was seen only once is taken for an unknown one with this probability, so that
    something is learned of those (Lample et al. 2016, section 4.3); its characters stay. `rare`: the first number of
    such words. `straight`: what is read says something of the tags by itself as well, by a matrix past the encoder (as
    the wide part of Cheng et al. 2016), so that what every word's commonest tag is need not go through it.
    """

    def __init__(
        self,
        source_size: int,
        characters_size: int,
        tags: int,
        rare: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        characters: Annotated[Choice, SPELLINGS] = "lstm",
        output: Annotated[Choice, OUTPUTS] = "crf",
        embedding: int = 128,
        dropout: float = 0.3,
        unknown: float = 0.5,
        straight: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= unknown <= 1:
            raise SeqloomError(f"unknown is a probability, 0 … 1, here {unknown}")
        self.source = embedding_of(source_size, embedding)
        self.characters = build(SPELLINGS, characters, size=characters_size)
        dim = embedding + self.characters.dim
        self.encoder = build(ENCODERS, encoder, input_dim=dim)
        self.score = nn.Linear(self.encoder.dim, tags)
        self.straight = nn.Linear(dim, tags, bias=False) if straight else None
        self.output = build(OUTPUTS, output, tags=tags)
        self.dropout, self.unknown, self.rare = dropout, unknown, rare

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]."""
        x = self.read(source)
        states = self.encoder(x, source.lengths).states
        scores = self.score(dropout(states, self.dropout, self.training))
        return scores if self.straight is None else scores + self.straight(x)

    def read(self, source: Words) -> Tensor:
        """What the encoder gets, [B, S, embedding + characters]: each distinct word is spelt once."""
        tokens = source.tokens.tokens
        if self.training and self.unknown:
            rare = (tokens >= self.rare) & (torch.rand(tokens.shape, device=tokens.device) < self.unknown)
            tokens = tokens.masked_fill(rare, UNK)
        x = self.source(tokens)
        if self.characters.dim:
            spelt = self.characters(source.characters)
            x = torch.cat([x, spelt[source.index].to(x.dtype)], -1)
        return dropout(x, self.dropout, self.training)

    def forward(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]."""
        return self.output(self.scores(source), tags, source.lengths, smoothing)

    def guessed(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> Guessed:
        """log p(tags), and of every tag at each place by itself."""
        scores, lengths = self.scores(source), source.lengths
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        return Guessed(self.output(scores, tags, lengths, smoothing), self.output.marginals(scores, lengths))

    def best(self, source: Words, allowed: Allowed | None = None, asked: Tensor | None = None) -> Found:
        """The likeliest tags; with `allowed`, of those rows that keep to it. `asked`: tags whose likelihood to give."""
        return found(self, source, allowed, asked)


class Majority(nn.Module):
    """The baseline: every word's commonest tag in the training data; for words that it has not seen, the commonest of
    all (Charniak et al. 1993). Counted, not trained: p(tag | word) has one more count, shared out as the tags are."""

    def __init__(self, source_size: int, characters_size: int, tags: int, rare: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(source_size, tags), requires_grad=False)
        self.output = Softmax(tags)

    @torch.no_grad()
    def fit(self, supply: Any) -> None:
        """Count the words' numbers and tags of a `Tagging`."""
        counts = np.zeros(tuple(self.counts.shape), np.float32)
        np.add.at(counts, (supply.numbers, supply.tags.ids), 1)
        self.counts.copy_(torch.from_numpy(counts))

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]: log p(tag | word)."""
        total = self.counts.sum(0) + 1  # no tag is impossible
        found = self.counts[source.tokens.tokens] + total / total.sum()
        return (found / found.sum(-1, keepdim=True)).log()

    def forward(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.output(self.scores(source), tags, source.lengths, 0.0)

    def best(self, source: Words, allowed: Allowed | None = None, asked: Tensor | None = None) -> Found:
        return found(self, source, allowed, asked)


def found(model: Any, source: Words, allowed: Allowed | None, asked: Tensor | None) -> Found:
    """What a model that has `scores` and an `output` finds likeliest."""
    scores, lengths, output = model.scores(source), source.lengths, model.output
    scores = scores.float() if scores.dtype.itemsize < 4 else scores
    tags = output.best(scores, lengths, allowed)
    marginals = output.marginals(scores, lengths).gather(2, tags[:, :, None])[:, :, 0]
    return Found(tags, marginals, output(scores, tags if asked is None else asked, lengths))


TAGGERS = {"tagger": Tagger, "majority": Majority}
