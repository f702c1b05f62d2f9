"""N → N in pretraining: an encoder predicts masked tokens from both sides."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.models.encoders import ENCODERS
from seqloom.models.protocols import Encoded
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of

# The mask token. No source begins with <bos>, yet every source embedding has a row for it: so embeddings have the same
# shape in all tasks and can be transferred.
MASK = BOS


class MaskedLanguageModel(nn.Module):
    """Masked-token prediction (Devlin et al. 2019, section 3.1, https://aclanthology.org/N19-1423) over any encoder.

    `tie_embeddings` shares the output's matrix with the embedding (Press & Wolf 2017); if the encoder has another
    width, its states go through one more linear layer.
    """

    def __init__(
        self,
        source_size: int,
        encoder: Annotated[Choice, ENCODERS] = "transformer",
        embedding: int = 256,
        dropout: float = 0.1,
        tie_embeddings: bool = True,
    ) -> None:
        super().__init__()
        self.source = embedding_of(source_size, embedding)
        self.encoder = build(ENCODERS, encoder, input_dim=embedding)
        narrow = tie_embeddings and self.encoder.dim != embedding
        self.project = nn.Linear(self.encoder.dim, embedding) if narrow else nn.Identity()
        dim = embedding if tie_embeddings else self.encoder.dim
        self.output = nn.Linear(dim, source_size)
        nn.init.normal_(self.output.weight, std=dim**-0.5)
        nn.init.zeros_(self.output.bias)
        self.dropout = dropout
        if tie_embeddings:
            self.output.weight = self.source.weight

    def read(self, source: Padded) -> Encoded:
        x = dropout(self.source(source.tokens), self.dropout, self.training)
        return self.encoder(x, None if source.full else source.lengths)

    def forward(self, source: Padded, positions: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits [N, V] at the flat `positions` [N] of the [B, S] matrix; no others are computed. With `labels` [N],
        Σ −log p of them."""
        states = self.read(source).states.flatten(0, 1).index_select(0, positions)
        states = dropout(self.project(states), self.dropout, self.training)
        return self.output(states) if labels is None else cross_entropy_sum(states, self.output, labels)


MODELS = {"masked": MaskedLanguageModel}
