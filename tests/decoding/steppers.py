"""Steppers for the tests of search, and searches that are slow and obviously right."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.data.batches.collate import Padded, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.parts.state import Decoding


class Hashed:
    """A model whose next token depends on the whole prefix through one number, kept in the state of each row.

    Sentence i is the source row [i]. A row that was picked wrongly goes on with another prefix's number, and a source
    that was repeated is noticed.
    """

    places = 4099  # prime and large: two prefixes that met would make exact ties

    def __init__(self, sentences: int, vocabulary: int, seed: int, sharp: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = sharp * torch.randn(sentences, self.places, vocabulary, generator=generator)
        self.most_rows = 0

    def start(self, source: Padded, *, width: int = 1, room: int | None = None) -> Decoding:
        return Decoding(source.tokens[:, 0], torch.zeros(width * source.tokens.size(0), dtype=torch.long))

    def step(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        rows, sentences = tokens.size(0), state.context.size(0)
        assert rows % sentences == 0
        assert state.rows.size(0) == rows
        self.most_rows = max(self.most_rows, rows)
        number = (131 * state.rows + 7 * tokens[:, 0] + 3) % self.places
        which = state.context.repeat_interleave(rows // sentences)
        return self.table[which, number][:, None].clone(), Decoding(state.context, number)

    def log_probabilities(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        """After this prefix, for every token; -inf for those that are never written."""
        return speakable(self.table[sentence, self.place(prefix)])

    def place(self, prefix: tuple[int, ...]) -> int:
        number = 0
        for token in (BOS, *prefix):
            number = (131 * number + 7 * token + 3) % self.places
        return number


def sentences(*numbers: int) -> Padded:
    return pad([[number] for number in numbers])


def speakable(logits: Tensor) -> list[float]:
    logits = logits.detach().double().clone()
    logits[[PAD, BOS, UNK]] = -torch.inf
    return logits.log_softmax(-1).tolist()


class Recomputing:
    """A model asked from the beginning for each prefix, one sentence at a time, without any state."""

    def __init__(self, model, source: Padded) -> None:
        self.model, self.source = model, source

    @torch.no_grad()
    def log_probabilities(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        one = self.source.part(sentence, sentence + 1)
        return speakable(self.model(one, torch.tensor([[BOS, *prefix]]))[0, -1])


def slow_beam(model, sentence: int, limit: int, width: int, alpha: float):
    """[(score, tokens with <eos>, log-probability)], best first: beam search as its docstring says, one sentence."""
    live, ended = [((), 0.0)], []
    for length in range(1, limit + 1):
        candidates = [
            (before + log_p, (*prefix, token))
            for prefix, before in live
            for token, log_p in enumerate(model.log_probabilities(sentence, prefix))
            if log_p > -torch.inf
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        live = []
        for rank, (log_p, tokens) in enumerate(candidates):
            if tokens[-1] != EOS and length < limit:
                live.append((tokens, log_p))
            elif rank < width:
                ended.append((log_p / length**alpha, tokens, log_p))
        live = live[:width]
        ended = sorted(ended, reverse=True)[:width]
        if not live or (len(ended) == width and live[0][1] / length**alpha <= ended[-1][0]):
            break
    return ended


def slow_greedy(model, sentence: int, limit: int):
    """(tokens without <eos>, log-probability)"""
    tokens, total = (), 0.0
    while len(tokens) < limit:
        log_p = model.log_probabilities(sentence, tokens)
        best = max(range(len(log_p)), key=log_p.__getitem__)
        total += log_p[best]
        if best == EOS:
            break
        tokens = (*tokens, best)
    return tokens, total


def every_string(model, sentence: int, limit: int, alpha: float):
    """All strings that end in <eos> or reach the limit: [(score, tokens, log-probability)], best first."""
    found, open_ = [], [((), 0.0)]
    for length in range(1, limit + 1):
        grown = [
            ((*prefix, token), before + log_p)
            for prefix, before in open_
            for token, log_p in enumerate(model.log_probabilities(sentence, prefix))
            if log_p > -torch.inf
        ]
        open_ = [one for one in grown if one[0][-1] != EOS and length < limit]
        found += [(p / length**alpha, tokens, p) for tokens, p in grown if tokens[-1] == EOS or length == limit]
    return sorted(found, reverse=True)


def without_end(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tokens[:-1] if tokens and tokens[-1] == EOS else tokens
