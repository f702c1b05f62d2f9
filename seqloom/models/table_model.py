"""Rows of a table → 1: numbers, categories and texts in, a score for each class out (or a number)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.collate import Padded
from seqloom.data.batches.table import Fields
from seqloom.models.classifier import Majority
from seqloom.models.encoders import ENCODERS
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of
from seqloom.parts.layers.output_head import Head
from seqloom.parts.layers.pooling import POOLINGS


class RowModel(nn.Module):
    """The values of a row and one vector for each of its texts, concatenated, then a head of Linear layers
    (Gorishniy et al. 2021, section 3.1, https://arxiv.org/abs/2106.11959).

    Without a hidden layer it is linear regression (Legendre 1805), of two classes logistic regression (Cox 1958) and of
    more softmax regression (Bridle 1990). Of two classes the first has the logit 0. All columns of text share one
    embedding and one encoder. `hidden` and `activation`: see Head. `dropout`: of the embeddings and before every layer
    of the head, so that values of the row are dropped too.
    """

    def __init__(
        self,
        value_count: int,
        text_count: int,
        source_size: int,
        label_count: int,
        encoder: Annotated[Choice, ENCODERS] = "gru",
        pooling: Annotated[Choice, POOLINGS] = "max",
        embedding: int = 64,
        hidden: int | list[int] = 64,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dim = value_count
        if text_count:
            self.source = embedding_of(source_size, embedding)
            self.encoder = build(ENCODERS, encoder, input_dim=embedding)
            directions = getattr(self.encoder, "directions", 0)
            self.summary = build(POOLINGS, pooling, input_dim=embedding, dim=self.encoder.dim, directions=directions)
            dim += text_count * self.encoder.dim
        self.value_count, self.label_count, self.dropout = value_count, label_count, dropout
        self.head = Head(dim, 1 if label_count == 2 else label_count, hidden, activation, dropout)

    def read(self, source: Padded) -> Tensor:
        """[B, dim], one vector a text."""
        x = dropout(self.source(source.tokens), self.dropout, self.training)
        encoded = self.encoder(*self.summary.prepare(x, None if source.full else source.lengths))
        return self.summary(encoded.states, encoded.lengths)

    def forward(self, source: Fields) -> Tensor:
        """Logits, [B, label_count]."""
        logits = self.head(torch.cat([source.values, *map(self.read, source.texts)], -1))
        return torch.cat([torch.zeros_like(logits), logits], -1) if self.label_count == 2 else logits

    def weights(self) -> tuple[Tensor, Tensor] | None:
        """The weight of each value for each logit, [labels, V], and the biases, [labels]; of two classes only those of
        the second. None for a model with a hidden layer."""
        if len(self.head.layers) > 1:
            return None
        layer = self.head.layers[0]
        return layer.weight.detach()[:, : self.value_count], layer.bias.detach()  # pyright: ignore


class RowMajority(Majority):
    """The baseline: always the most common class, or the mean of the numbers (the zero rule; Holte 1993)."""

    def __init__(self, value_count: int, text_count: int, source_size: int, label_count: int) -> None:
        super().__init__(source_size, label_count)

    def forward(self, source: Fields) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.logits.expand(len(source.values), -1)


ROW_MODELS = {
    "rows": RowModel,
    "majority": RowMajority,
    "linear": {"kind": "rows", "hidden": 0, "dropout": 0.0},
    "mlp": {"kind": "rows"},
}
