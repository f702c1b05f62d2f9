"""N → N: a tag for each word. Any encoder, any character encoder, a softmax or a CRF on top."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.words import Words
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.errors import SeqloomError
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders.characters import CHARACTER_ENCODERS
from seqloom.parts.layers.crf import TAG_OUTPUTS, Allowed, Softmax
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of


class TagPrediction(NamedTuple):
    """The most likely tags."""

    tags: Tensor  # [B, S]
    marginals: Tensor  # [B, S]: log p(tag)
    likelihood: Tensor  # [B]: log p(all of them), or of the given tags


class TagDistribution(NamedTuple):
    """How likely given tags are, and every tag at each position."""

    likelihood: Tensor  # [B]: log p(the tags)
    marginals: Tensor  # [B, S, K]: log p(tag)


class Tagger(nn.Module):
    """Words, by their ids and their characters, through an encoder to the scores of tags (Collobert et al. 2011;
    Huang et al. 2015; Lample et al. 2016; Ma & Hovy 2016).

    `unk_rate`: in training, a word that was seen only once is replaced by <unk> with this probability, so that <unk> is
    trained (Lample et al. 2016, section 4.3); its characters stay. `rare`: the first number of
    such words. `skip_connection`: a linear layer from the encoder's input straight to the tags (as the wide part of
    Cheng et al. 2016), so that every word's most common tag need not go through the encoder.
    """

    def __init__(
        self,
        source_size: int,
        characters_size: int,
        tags: int,
        rare: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        characters: Annotated[Choice, CHARACTER_ENCODERS] = "lstm",
        output: Annotated[Choice, TAG_OUTPUTS] = "crf",
        embedding: int = 128,
        dropout: float = 0.3,
        unk_rate: float = 0.5,
        skip_connection: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= unk_rate <= 1:
            raise SeqloomError(f"unk_rate is a probability, 0 … 1, here {unk_rate}")
        self.source = embedding_of(source_size, embedding)
        self.characters = build(CHARACTER_ENCODERS, characters, size=characters_size)
        dim = embedding + self.characters.dim
        self.encoder = build(ENCODERS, encoder, input_dim=dim)
        self.score = nn.Linear(self.encoder.dim, tags)
        self.straight = nn.Linear(dim, tags, bias=False) if skip_connection else None
        self.output = build(TAG_OUTPUTS, output, tags=tags)
        self.dropout, self.unk_rate, self.rare = dropout, unk_rate, rare

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]."""
        x = self.read(source)
        states = self.encoder(x, source.lengths).states
        scores = self.score(dropout(states, self.dropout, self.training))
        return scores if self.straight is None else scores + self.straight(x)

    def read(self, source: Words) -> Tensor:
        """The encoder's input, [B, S, embedding + characters]; characters of each distinct word are encoded once."""
        tokens = source.tokens.tokens
        if self.training and self.unk_rate:
            rare = (tokens >= self.rare) & (torch.rand(tokens.shape, device=tokens.device) < self.unk_rate)
            tokens = tokens.masked_fill(rare, UNK)
        x = self.source(tokens)
        if self.characters.dim:
            by_word = self.characters(source.characters)
            x = torch.cat([x, by_word[source.index].to(x.dtype)], -1)
        return dropout(x, self.dropout, self.training)

    def forward(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> Tensor:
        """log p(tags), [B]."""
        return self.output(self.scores(source), tags, source.lengths, smoothing)

    def distribution(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> TagDistribution:
        """log p(tags), and log p of every tag at each position."""
        scores, lengths = self.scores(source), source.lengths
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        return TagDistribution(self.output(scores, tags, lengths, smoothing), self.output.marginals(scores, lengths))

    def best(self, source: Words, allowed: Allowed | None = None, given: Tensor | None = None) -> TagPrediction:
        """The most likely tags; with `allowed`, only of allowed sequences. `given`: tags whose likelihood to return."""
        return predict_tags(self, source, allowed, given)


class Majority(nn.Module):
    """The baseline: every word's most common tag in the training data; for unseen words, the most common of
    all (Charniak et al. 1993). Counted, not trained: p(tag | word) has one more count, distributed by tag frequency."""

    def __init__(self, source_size: int, characters_size: int, tags: int, rare: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(source_size, tags), requires_grad=False)
        self.output = Softmax(tags)

    @torch.no_grad()
    def fit(self, supply: Any) -> None:
        """Count words and tags of the training data."""
        counts = np.zeros(tuple(self.counts.shape), np.float32)
        np.add.at(counts, (supply.numbers, supply.tags.ids), 1)
        self.counts.copy_(torch.from_numpy(counts))

    def scores(self, source: Words) -> Tensor:
        """[B, S, K]: log p(tag | word)."""
        total = self.counts.sum(0) + 1  # no tag is impossible
        counts = self.counts[source.tokens.tokens] + total / total.sum()
        return (counts / counts.sum(-1, keepdim=True)).log()

    def forward(self, source: Words, tags: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.output(self.scores(source), tags, source.lengths, 0.0)

    def best(self, source: Words, allowed: Allowed | None = None, given: Tensor | None = None) -> TagPrediction:
        return predict_tags(self, source, allowed, given)


def predict_tags(model: Any, source: Words, allowed: Allowed | None, given: Tensor | None) -> TagPrediction:
    """The most likely tags of a model that has `scores` and an `output`."""
    scores, lengths, output = model.scores(source), source.lengths, model.output
    scores = scores.float() if scores.dtype.itemsize < 4 else scores
    tags = output.best(scores, lengths, allowed)
    marginals = output.marginals(scores, lengths).gather(2, tags[:, :, None])[:, :, 0]
    return TagPrediction(tags, marginals, output(scores, tags if given is None else given, lengths))


TAGGERS = {"tagger": Tagger, "majority": Majority}
