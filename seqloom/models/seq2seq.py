"""N → M: an encoder reads the source, a decoder writes the target. Any encoder with any decoder."""

from __future__ import annotations

from typing import Annotated, Protocol

from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import EOS, PAD
from seqloom.errors import SeqloomError, known
from seqloom.models.decoders import DECODERS
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders.layer_views import VIEWS, Views
from seqloom.models.protocols import Encoded
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.layers.embedding import embedding_of
from seqloom.parts.layers.norm import looks_across
from seqloom.parts.state import Decoding


class Stepper(Protocol):
    """The only interface through which greedy search, sampling, beam search and serving use a model."""

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        """Read the source; `width` rows a sentence from here on, memory for `room` steps."""
        ...

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> logits [R, T, V]"""
        ...


class Seq2Seq(nn.Module):
    """Encoder-decoder (Sutskever et al. 2014; Cho et al. 2014). `tie_embeddings` shares the output's matrix with the
    target's embedding, `share_embeddings` the source's embedding with the target's (Press & Wolf 2017); a shared matrix
    is stored once. `views`: which layers of the encoder those of the decoder read, the `last`, `each` its own or `all`
    (see Views)."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        encoder: Annotated[Choice, ENCODERS] = "lstm",
        decoder: Annotated[Choice, DECODERS] = "attentive",
        embedding: int = 256,
        dropout: float = 0.1,
        tie_embeddings: bool = False,
        share_embeddings: bool = False,
        views: str = "last",
    ) -> None:
        super().__init__()
        if share_embeddings and source_size != target_size:
            raise SeqloomError(
                f"share_embeddings needs one vocabulary for both sides, here {source_size} and {target_size} ids"
            )
        self.source = embedding_of(source_size, embedding)
        self.target = self.source if share_embeddings else embedding_of(target_size, embedding)
        self.encoder = build(ENCODERS, encoder, input_dim=embedding)
        self.decoder = build(
            DECODERS,
            decoder,
            input_dim=embedding,
            memory_dim=self.encoder.dim,
            final_dims=self.encoder.final_dims,
        )
        self.views = None
        if known(views, VIEWS, "views") != "last":
            self.views = Views(views, getattr(self.encoder, "layer_dims", ()), getattr(self.decoder, "reads", 0))
        self.output = nn.Linear(self.decoder.dim, target_size)
        nn.init.normal_(self.output.weight, std=self.decoder.dim**-0.5)
        nn.init.zeros_(self.output.bias)
        self.dropout = dropout
        self.across = looks_across(self.decoder)
        if tie_embeddings:
            if self.decoder.dim != embedding:
                raise SeqloomError(
                    f"tie_embeddings needs decoder.dim equal to embedding, here {self.decoder.dim} and {embedding}"
                )
            self.output.weight = self.target.weight

    def read(self, source: Padded) -> Encoded:
        """What the decoder reads."""
        x = dropout(self.source(source.tokens), self.dropout, self.training)
        encoded = self.encoder(x, None if source.full else source.lengths)
        return encoded if self.views is None else self.views(encoded)

    def write(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> the states from which the next tokens are predicted, [R, T, dim]."""
        x = dropout(self.target(tokens), self.dropout, self.training)
        # Nothing is predicted from <eos>, which ends a row.
        real = (((tokens != PAD) & (tokens != EOS)).sum(1),) if self.training and self.across else ()
        states, state = self.decoder(x, state, *real)
        return dropout(states, self.dropout, self.training), state

    def forward(
        self,
        source: Padded,
        tokens: Tensor,
        index: Tensor | None = None,
        labels: Tensor | None = None,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Teacher forcing: logits [B, T, V]; with `index`, [N, V] at those flat positions only, so that nothing is
        computed for padding; with `labels` [N] too, Σ −log p of them, without <pad>."""
        states, _ = self.write(tokens, self.decoder.begin(self.read(source)))
        states = states if index is None else states.flatten(0, 1).index_select(0, index)
        return self.output(states) if labels is None else cross_entropy_sum(states, self.output, labels, smoothing, PAD)

    @accelerated
    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        return self.decoder.begin(self.read(source), width, room)

    @accelerated
    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        states, state = self.write(tokens, state)
        return self.output(states), state


MODELS = {"seq2seq": Seq2Seq}
