"""Character encoders: [U, C] characters of distinct words -> [U, dim]. They see endings, case and digits, also of words
that the training data lacks."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.data.batches.collate import Padded
from seqloom.models.encoders.recurrent import RecurrentEncoder
from seqloom.parts.layers.dropout import dropout as drop
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.visibility import keep


class NoCharacters(nn.Module):
    """No characters: a word is its embedding alone, as in Bengio et al. 2003."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dim = 0

    def forward(self, characters: Padded) -> Tensor:
        return torch.zeros(characters.tokens.size(0), 0, device=characters.tokens.device)


class RecurrentCharacters(nn.Module):
    """The last states of a recurrent layer over the characters, read both ways (Lample et al. 2016, section 4.1).

    `dim` is the width of each direction."""

    def __init__(
        self,
        size: int,
        cell: Annotated[Choice, CELLS] = "lstm",
        embedding: int = 32,
        dim: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, embedding)
        self.encoder = RecurrentEncoder(embedding, cell, dim)
        self.dim = self.encoder.dim
        self.dropout = dropout

    def forward(self, characters: Padded) -> Tensor:
        x = drop(self.embedding(characters.tokens), self.dropout, self.training)
        return self.encoder(x, None if characters.full else characters.lengths).summary


class ConvolutionCharacters(nn.Module):
    """The maximum of each filter over the word (Ma & Hovy 2016, section 2.1; dos Santos & Zadrozny
    2014). `window`: characters that a filter sees."""

    def __init__(self, size: int, embedding: int = 32, dim: int = 128, window: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, embedding)
        self.filters = nn.Conv1d(embedding, dim, window, padding=window // 2)
        self.dim = dim
        self.dropout = dropout

    def forward(self, characters: Padded) -> Tensor:
        real = keep(characters.lengths, characters.tokens.size(1))
        x = self.embedding(characters.tokens).masked_fill(~real[:, :, None], 0.0)
        features = self.filters(drop(x, self.dropout, self.training).mT)[:, :, : real.size(1)]
        return features.masked_fill(~real[:, None], -float("inf")).amax(-1).tanh()


CHARACTER_ENCODERS = {
    "none": NoCharacters,
    "recurrent": RecurrentCharacters,
    "rnn": {"kind": "recurrent", "cell": "rnn"},
    "gru": {"kind": "recurrent", "cell": "gru"},
    "lstm": {"kind": "recurrent", "cell": "lstm"},
    "convolution": ConvolutionCharacters,
}
