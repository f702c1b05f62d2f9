"""The peers' models in plain torch, as one writes them by hand: the same sizes and the same equations as ours."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

DIM, LAYERS, HEADS, HIDDEN, DROPOUT = 256, 3, 4, 1024, 0.1
STATE = 512  # of the LSTM decoder; each direction of the encoder has half of it
LONGEST = 512


class PlainTransformer(nn.Module):
    """nn.Transformer, norm before, with sinusoidal positions and the output tied to the target's embedding.

    Its attention weights are not dropped out: ours are not, and on a CPU that would cost nn.Transformer the fused
    kernel. No mask where there is nothing to hide; the causal one is passed with the hint that it is causal.
    """

    def __init__(self, source_size: int, target_size: int) -> None:
        super().__init__()
        self.source, self.target = embedding(source_size), embedding(target_size)
        with warnings.catch_warnings():  # that nested tensors, which nobody asked for, do not go with norm_first
            warnings.simplefilter("ignore")
            self.body = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, HIDDEN, DROPOUT, batch_first=True, norm_first=True)
        for part in self.body.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
        self.output = nn.Linear(DIM, target_size)
        self.output.weight = self.target.weight
        nn.init.zeros_(self.output.bias)
        self.register_buffer("positions", sinusoids(LONGEST), persistent=False)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(LONGEST), persistent=False)

    def read(self, source: Tensor, padded: Tensor | None) -> Tensor:
        """[B, S] -> [B, S, DIM]; `padded` [B, S] is torch's mask: True where there is nothing."""
        return self.body.encoder(self._enter(self.source, source), src_key_padding_mask=padded)

    def write(self, tokens: Tensor, memory: Tensor, padded: Tensor | None) -> Tensor:
        """[B, T] -> states [B, T, DIM]"""
        return self.body.decoder(
            self._enter(self.target, tokens),
            memory,
            tgt_mask=self.causal[: tokens.size(1), : tokens.size(1)],
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )

    def forward(self, source: Tensor, padded: Tensor | None, tokens: Tensor) -> Tensor:
        return self.output(self.write(tokens, self.read(source, padded), padded))

    def _enter(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens) * DIM**0.5 + self.positions[: tokens.size(1)]
        return F.dropout(x, DROPOUT, self.training)


State = tuple[Tensor, Tensor]


class PlainLstm(nn.Module):
    """nn.LSTM both ways over the source, nn.LSTM over the target at once, then Luong's general attention.

    h̃ = tanh(W [c; h]) is not fed back, so no loop over time is needed in training.
    """

    def __init__(self, source_size: int, target_size: int) -> None:
        super().__init__()
        self.source, self.target = embedding(source_size), embedding(target_size)
        self.encoder = nn.LSTM(DIM, STATE // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(DIM, STATE, batch_first=True)
        self.keys = nn.Linear(STATE, STATE, bias=False)
        self.combine = nn.Linear(2 * STATE, STATE, bias=False)
        self.output = nn.Linear(STATE, target_size)

    def read(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, State]:
        """[B, S] -> [B, S, STATE] and the last states of both directions side by side. `lengths`: if ragged."""
        x = F.dropout(self.source(source), DROPOUT, self.training)
        if lengths is None:
            states, (h, c) = self.encoder(x)
        else:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, (h, c) = self.encoder(packed)
            states, _ = pad_packed_sequence(states, batch_first=True)
        return states, (_side_by_side(h), _side_by_side(c))

    def write(
        self, tokens: Tensor, state: State, keys: Tensor, values: Tensor, real: Tensor | None
    ) -> tuple[Tensor, State]:
        """[B, T] -> logits [B, T, V]; `real` [B, 1, S] is True where a source token stands."""
        h, state = self.decoder(F.dropout(self.target(tokens), DROPOUT, self.training), state)
        context = F.scaled_dot_product_attention(h, keys, values, attn_mask=real, scale=1.0)
        mixed = torch.tanh(self.combine(torch.cat([context, h], -1)))
        return self.output(F.dropout(mixed, DROPOUT, self.training)), state

    def forward(self, source: Tensor, lengths: Tensor | None, real: Tensor | None, tokens: Tensor) -> Tensor:
        values, state = self.read(source, lengths)
        return self.write(tokens, state, self.keys(values), values, real)[0]


def embedding(size: int) -> nn.Embedding:
    table = nn.Embedding(size, DIM)
    nn.init.normal_(table.weight, std=DIM**-0.5)
    return table


def sinusoids(length: int) -> Tensor:
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


def _side_by_side(state: Tensor) -> Tensor:
    """[2, B, D] -> [1, B, 2·D]"""
    return torch.cat([state[0], state[1]], -1)[None]
