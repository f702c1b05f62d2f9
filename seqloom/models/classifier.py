"""N → 1: a sequence in, a score for each label out (or a number). Any encoder with any pooling."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.collate import Padded
from seqloom.errors import SeqloomError
from seqloom.models.encoders import ENCODERS
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of
from seqloom.parts.layers.ngram_features import embed_with_ngrams, ngram_features
from seqloom.parts.layers.output_head import Head
from seqloom.parts.layers.pooling import POOLINGS
from seqloom.parts.visibility import keep, mean


class Classifier(nn.Module):
    """An encoder, pooling to one vector, and a head that scores the labels (Collobert et al. 2011).

    `hidden` and `activation`: see Head. `dropout`: of the embeddings and before every layer of the head. `ngrams` above
    1: to each token's embedding are added those of the n-grams up to this length that end with it; see NgramFeatures.
    """

    def __init__(
        self,
        source_size: int,
        label_count: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        pooling: Annotated[Choice, POOLINGS] = "max",
        embedding: int = 256,
        hidden: int | list[int] = 0,
        activation: str = "relu",
        dropout: float = 0.1,
        ngrams: int = 1,
        buckets: int = 1 << 18,
    ) -> None:
        super().__init__()
        self.source = embedding_of(source_size, embedding)
        self.grams = ngram_features(ngrams, buckets, embedding)
        self.encoder = build(ENCODERS, encoder, input_dim=embedding)
        directions = getattr(self.encoder, "directions", 0)
        self.summary = build(POOLINGS, pooling, input_dim=embedding, dim=self.encoder.dim, directions=directions)
        self.head = Head(self.encoder.dim, label_count, hidden, activation, dropout)
        self.dropout = dropout

    def read(self, source: Padded) -> Tensor:
        """[B, dim], one vector a text."""
        x = dropout(embed_with_ngrams(source.tokens, self.source, self.grams), self.dropout, self.training)
        encoded = self.encoder(*self.summary.prepare(x, None if source.full else source.lengths))
        return self.summary(encoded.states, encoded.lengths)

    def forward(self, source: Padded) -> Tensor:
        """Logits, [B, label_count]."""
        return self.head(self.read(source))


class Majority(nn.Module):
    """The baseline: always the most common label, or the mean of the numbers (the zero rule; Holte 1993). It is
    counted, not trained."""

    def __init__(self, source_size: int, label_count: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(label_count), requires_grad=False)

    def fit(self, supply: Any) -> None:
        """`supply.prior()`: the logits [label_count] of the label frequencies of the training data."""
        with torch.no_grad():
            self.logits.copy_(torch.as_tensor(supply.prior()))

    def forward(self, source: Padded) -> Tensor:
        return self.logits.expand(len(source.host), -1)


class Bag(nn.Module):
    """The mean of the embeddings and one Linear: a bag of words, in any order (fastText: Joulin et al. 2017).

    `ngrams` and `buckets`: a bag of n-grams, see Classifier.
    """

    def __init__(
        self,
        source_size: int,
        label_count: int,
        embedding: int = 64,
        dropout: float = 0.0,
        ngrams: int = 1,
        buckets: int = 1 << 18,
    ) -> None:
        super().__init__()
        self.source = embedding_of(source_size, embedding)
        self.grams = ngram_features(ngrams, buckets, embedding)
        self.head = Head(embedding, label_count)
        self.dropout = dropout

    def forward(self, source: Padded) -> Tensor:
        x = dropout(embed_with_ngrams(source.tokens, self.source, self.grams), self.dropout, self.training)
        return self.head(mean(x, None if source.full else source.lengths))


class Logistic(nn.Module):
    """Logistic regression (Cox 1958) on the concatenated embeddings of the first `length` tokens.

    20 tokens of 8 values make 160 weights and a bias. Longer texts are cut, shorter ones padded; see `window`.
    Only for two labels: the logit of the first is 0.
    """

    def __init__(self, source_size: int, label_count: int, embedding: int = 8, length: int = 20) -> None:
        super().__init__()
        if label_count != 2:
            raise SeqloomError(f"model logistic tells two labels apart, here {label_count}; choose softmax")
        self.source = embedding_of(source_size, embedding)
        self.head = Head(length * embedding, 1)
        self.length = length

    def forward(self, source: Padded) -> Tensor:
        logit = self.head(window(self.source, source, self.length))
        return torch.cat([torch.zeros_like(logit), logit], -1)


class Mlp(nn.Module):
    """Linear layers over the concatenated embeddings of the first `length` tokens (Bengio et al. 2003; Rumelhart et al.
    1986).

    Without a hidden layer it is softmax regression, for a number linear regression. `activation`: see Head.
    """

    def __init__(
        self,
        source_size: int,
        label_count: int,
        embedding: int = 8,
        length: int = 20,
        hidden: int | list[int] = 64,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.source = embedding_of(source_size, embedding)
        self.head = Head(length * embedding, label_count, hidden, activation, dropout)
        self.length = length

    def forward(self, source: Padded) -> Tensor:
        return self.head(window(self.source, source, self.length))


CLASSIFIERS = {
    "classifier": Classifier,
    "majority": Majority,
    "bag": Bag,
    "logistic": Logistic,
    "softmax": {"kind": "mlp", "hidden": 0},
    "mlp": Mlp,
}


def window(embedding: nn.Embedding, source: Padded, length: int) -> Tensor:
    """[B, length · dim]: the concatenated embeddings of the first `length` tokens, zeros after the last. The <eos> that
    ends every source is left out."""
    tokens = source.tokens[:, :length]
    x = embedding(tokens).masked_fill(~keep(source.lengths - 1, tokens.size(1))[:, :, None], 0.0)
    return nn.functional.pad(x, (0, 0, 0, length - tokens.size(1))).flatten(1)
