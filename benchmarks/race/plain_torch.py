"""The models of plain torch, as one writes them by hand: the same sizes and the same equations as ours."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class PlainTransformer(nn.Module):
    """nn.Transformer, norm before, with sinusoidal positions and the output tied to the target's embedding.

    Its attention weights are not dropped out: ours are not, and on a CPU that would cost nn.Transformer the fused
    kernel. No mask where there is nothing to hide; the causal one is passed with the hint that it is causal.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        dim: int,
        layers: int,
        heads: int,
        hidden: int,
        dropout: float,
        longest: int,
    ) -> None:
        super().__init__()
        self.dim, self.dropout = dim, dropout
        self.source, self.target = embedding(source_size, dim), embedding(target_size, dim)
        with warnings.catch_warnings():  # that nested tensors, which nobody asked for, do not go with norm_first
            warnings.simplefilter("ignore")
            self.body = nn.Transformer(dim, heads, layers, layers, hidden, dropout, batch_first=True, norm_first=True)
        for part in self.body.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
        self.output = nn.Linear(dim, target_size)
        self.output.weight = self.target.weight
        nn.init.zeros_(self.output.bias)
        self.register_buffer("positions", sinusoids(longest, dim), persistent=False)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(longest), persistent=False)

    def read(self, source: Tensor, padded: Tensor | None) -> Tensor:
        """[B, S] -> [B, S, dim]; `padded` [B, S] is torch's mask: True where there is nothing."""
        return self.body.encoder(self._enter(self.source, source), src_key_padding_mask=padded)

    def write(self, tokens: Tensor, memory: Tensor, padded: Tensor | None) -> Tensor:
        """[B, T] -> states [B, T, dim]"""
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
        x = table(tokens) * self.dim**0.5 + self.positions[: tokens.size(1)]
        return F.dropout(x, self.dropout, self.training)


State = tuple[Tensor, Tensor]
Memory = tuple[Tensor, Tensor, Tensor | None]  # keys and values [B, S, D]; [B, 1, S], True where a source token stands


class PlainLstm(nn.Module):
    """nn.LSTM both ways over the source, an LSTM over the target, Luong's general attention.

    h̃ = tanh(W [c; h]). Without feeding nn.LSTM runs over all steps at once and no loop is needed; with it, h̃ stands
    beside the next token, and nn.LSTMCell steps in the loop of the textbooks.
    """

    def __init__(
        self, source_size: int, target_size: int, embedding: int, dim: int, dropout: float, feeding: bool = False
    ) -> None:
        super().__init__()
        self.dim, self.dropout, self.feeding = dim, dropout, feeding
        self.source, self.target = _table(source_size, embedding), _table(target_size, embedding)
        self.encoder = nn.LSTM(embedding, dim // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTMCell(embedding + dim, dim) if feeding else nn.LSTM(embedding, dim, batch_first=True)
        self.keys = nn.Linear(dim, dim, bias=False)
        self.combine = nn.Linear(2 * dim, dim, bias=False)
        self.output = nn.Linear(dim, target_size)

    def read(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, State]:
        """[B, S] -> [B, S, dim] and the last states of both directions side by side. `lengths`: if ragged."""
        x = F.dropout(self.source(source), self.dropout, self.training)
        if lengths is None:
            states, (h, c) = self.encoder(x)
        else:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, (h, c) = self.encoder(packed)
            states, _ = pad_packed_sequence(states, batch_first=True)
        return states, (torch.cat([h[0], h[1]], -1), torch.cat([c[0], c[1]], -1))

    def write(
        self, tokens: Tensor, state: State, fed: Tensor | None, memory: Memory
    ) -> tuple[Tensor, State, Tensor | None]:
        """[B, T] -> logits [B, T, V], the state, and what is fed to the step after."""
        x = F.dropout(self.target(tokens), self.dropout, self.training)
        if self.feeding:
            mixed, state, fed = self._loop(x, state, fed, memory)
        else:
            h, (last, cell) = self.decoder(x, (state[0][None], state[1][None]))
            mixed, state = self._attend(h, memory), (last[0], cell[0])
        return self.output(F.dropout(mixed, self.dropout, self.training)), state, fed

    def _loop(self, x: Tensor, state: State, fed: Tensor | None, memory: Memory) -> tuple[Tensor, State, Tensor]:
        fed, written = torch.zeros_like(state[0]) if fed is None else fed, []
        for t in range(x.size(1)):
            state = self.decoder(torch.cat([x[:, t], fed], -1), state)
            fed = self._attend(state[0][:, None], memory)[:, 0]
            written.append(fed)
        return torch.stack(written, 1), state, fed

    def _attend(self, h: Tensor, memory: Memory) -> Tensor:
        keys, values, real = memory
        context = F.scaled_dot_product_attention(h, keys, values, attn_mask=real, scale=1.0)
        return torch.tanh(self.combine(torch.cat([context, h], -1)))

    def forward(self, source: Tensor, lengths: Tensor | None, real: Tensor | None, tokens: Tensor) -> Tensor:
        values, state = self.read(source, lengths)
        return self.write(tokens, state, None, (self.keys(values), values, real))[0]


class PlainWords(nn.Module):
    """A word-level language model as the tutorials have it: nn.Embedding, nn.LSTM, nn.Linear."""

    def __init__(self, size: int, embedding: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.dropout = nn.Embedding(size, embedding), dropout
        self.lstm, self.output = nn.LSTM(embedding, dim, batch_first=True), nn.Linear(dim, size)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] -> logits [B, T, V]"""
        x, _ = self.lstm(F.dropout(self.tokens(tokens), self.dropout, self.training))
        return self.output(F.dropout(x, self.dropout, self.training))


class PlainGpt(nn.Module):
    """A GPT in the plainest form: learned positions, norm before, gelu, fused causal attention, a tied output."""

    def __init__(
        self, size: int, dim: int, layers: int, heads: int, hidden: int, block: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(size, dim), nn.Embedding(block, dim)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(PlainBlock(dim, heads, hidden, dropout) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(dim), dropout

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] -> logits [B, T, V]"""
        x = self.tokens(tokens) + self.places.weight[: tokens.size(1)]
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class PlainBlock(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.enter, self.leave = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self._three(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.leave(mixed), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.after(x)))), self.dropout, self.training)

    def _three(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.enter(self.before(x)).chunk(3, -1)


def embedding(size: int, dim: int) -> nn.Embedding:
    table = nn.Embedding(size, dim)
    nn.init.normal_(table.weight, std=dim**-0.5)
    return table


_table = embedding  # where an argument is called embedding too


def sinusoids(length: int, dim: int) -> Tensor:
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
