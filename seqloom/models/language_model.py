"""N → M without a source: each token is predicted from those before it."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import PAD
from seqloom.errors import SeqloomError
from seqloom.models.baselines.ngram import Ngram
from seqloom.models.decoders.stacks import STACKS
from seqloom.parts.layers.dropout import dropout, locked_dropout
from seqloom.parts.layers.embedding import embedding_of
from seqloom.parts.layers.norm import looks_across
from seqloom.parts.layers.output_layers import TOKEN_OUTPUTS, TokenLosses
from seqloom.parts.state import Decoding, State


class LanguageModel(nn.Module):
    """A neural language model (Bengio et al. 2003): embedding, a causal stack, output.

    Ids below `source_size` are tokens to predict; those after are `labels`, which may replace <bos>.
    `tie_embeddings` shares the output's matrix with the embedding. For the AWD-LSTM (Merity et al. 2018):
    `locked_dropout` uses one dropout mask for all steps, `input_dropout` is that of the embeddings if it differs from
    the `dropout` of the output (section 5), `embedding_dropout` the share of the vocabulary whose vectors are zero in a
    batch (section 4.3), `activation_penalty` and `temporal_penalty` are the weights of the penalties on activations and
    on their changes (AR and TAR, section 4.5). `state_reset`: the share of rows whose state is not carried to the next
    batch of a stream. Without it the zero state, from which every prompt starts, is hardly trained (Melis et al. 2018).
    """

    def __init__(
        self,
        source_size: int,
        labels: int,
        encoder: Annotated[Choice, STACKS] = "lstm",
        output: Annotated[Choice, TOKEN_OUTPUTS] = "softmax",
        embedding: int = 256,
        dropout: float = 0.1,
        tie_embeddings: bool = False,
        locked_dropout: bool = False,
        input_dropout: float | None = None,
        embedding_dropout: float = 0.0,
        activation_penalty: float = 0.0,
        temporal_penalty: float = 0.0,
        state_reset: float = 0.02,
    ) -> None:
        super().__init__()
        input_dropout = dropout if input_dropout is None else input_dropout
        for name, share in (
            ("input_dropout", input_dropout),
            ("embedding_dropout", embedding_dropout),
            ("state_reset", state_reset),
        ):
            if not 0 <= share < 1:
                raise SeqloomError(f"{name} is at least 0 and below 1, here {share}")
        self.size = source_size
        self.source = embedding_of(source_size, embedding)
        self.labels = embedding_of(labels, embedding) if labels else None
        self.encoder = build(STACKS, encoder, input_dim=embedding)
        self.output = build(TOKEN_OUTPUTS, output, dim=self.encoder.dim, size=source_size)
        if tie_embeddings:
            self.output.tie(self.source)
        self.dropout, self.locked_dropout, self.input_dropout, self.embedding_dropout = (
            dropout,
            locked_dropout,
            input_dropout,
            embedding_dropout,
        )
        self.across = looks_across(self.encoder)
        self.activation_penalty, self.temporal_penalty = activation_penalty, temporal_penalty
        self.state_reset = state_reset

    @property
    def carries(self) -> bool:
        """Whether its state may be carried from batch to batch."""
        return self.encoder.carries

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor,
        index: Tensor | None = None,
        state: State = None,
        smoothing: float = 0.0,
        summed: bool = False,
    ) -> TokenLosses:
        """[R, T] tokens and the labels that follow them; with `index`, only those flat positions count. `summed`:
        return only the sum of losses, which takes less memory."""
        if self.training and state is not None and self.state_reset:
            state = _scaled(
                state, torch.empty(tokens.size(0), 1, device=tokens.device).bernoulli_(1 - self.state_reset)
            )
        real = ((tokens != PAD).sum(1),) if self.training and self.across else ()
        raw, state = self.encoder(self.read(tokens), state, *real)
        states = self._drop(raw, self.dropout)
        flat, wanted = states.flatten(0, 1), labels.flatten()
        if index is not None:
            flat, wanted = flat.index_select(0, index), wanted.index_select(0, index)
        losses = self.output.total if summed else self.output.nats
        return TokenLosses(losses(flat, wanted, smoothing), state, self._penalty(raw, states))

    def read(self, tokens: Tensor) -> Tensor:
        """[R, T] -> [R, T, embedding]"""
        if self.labels is None:
            x = self.source(tokens)
        else:
            label = tokens >= self.size
            x = self.source(tokens.masked_fill(label, 0))
            x = torch.where(label[..., None], self.labels((tokens - self.size).clamp(min=0)), x)
        if self.training and self.embedding_dropout:
            scale = torch.empty(self.size, device=x.device).bernoulli_(1 - self.embedding_dropout) / (
                1 - self.embedding_dropout
            )
            x = x * scale[tokens.clamp(max=self.size - 1)][..., None]
        return self._drop(x, self.input_dropout)

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        """Read a prompt, [B, S], perhaps empty; `width` rows of each continue it. Rows of one length.

        A Transformer sees at most `room` tokens, see `TransformerStack`.
        """
        if not source.full:
            raise SeqloomError("a language model starts from rows of one length")
        state = Decoding(None, self.encoder.begin(room))
        tokens = source.tokens
        if width > 1:
            tokens = tokens.repeat_interleave(width, 0)
        return self.encode(tokens, state)[1] if tokens.size(1) else state

    def encode(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> the states from which the next tokens are predicted, [R, T, dim]."""
        states, rows = self.encoder(self.read(tokens), state.rows)
        return self._drop(states, self.dropout), Decoding(None, rows)

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T] -> logits [R, T, V]"""
        states, state = self.encode(tokens, state)
        return self.output(states), state

    def _drop(self, x: Tensor, share: float) -> Tensor:
        return (locked_dropout if self.locked_dropout else dropout)(x, share, self.training)

    def _penalty(self, raw: Tensor, dropped: Tensor) -> Tensor | None:
        if not self.training or not (self.activation_penalty or self.temporal_penalty):
            return None
        penalty = self.activation_penalty * dropped.float().pow(2).mean()
        if raw.size(1) > 1:
            penalty = penalty + self.temporal_penalty * (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()
        return penalty


def _scaled(state: State, factor: Tensor) -> State:
    if isinstance(state, Tensor):
        return state * factor.view(-1, *[1] * (state.dim() - 1))
    return tuple(_scaled(part, factor) for part in state)


LANGUAGE_MODELS = {"language": LanguageModel, "ngram": Ngram}
