"""Hypotheses during a search, running and finished, in rows that are aligned with the model's state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.data.tokenizers.tokenizers import EOS, PAD


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without <bos> and <eos>
    score: float  # what it is ranked by: its log-probability, in a beam divided by length^alpha
    log_probability: float


@dataclass
class RunningSequences:
    """The sequences that greedy search or sampling writes, one a row, aligned with the model's state."""

    index: Tensor  # [R]: the number of the row's sequence
    limit: Tensor  # [R]
    written: Tensor  # [R, room]
    score: Tensor  # [R]: log-probability
    finished: Tensor  # [R] bool
    first_limit: int  # no limit is reached before this step

    @classmethod
    def begin(cls, limits: list[int], width: int, device: torch.device) -> RunningSequences:
        limit = torch.tensor(limits, device=device).repeat_interleave(width)
        total = len(limit)
        return cls(
            torch.arange(total, device=device),
            limit,
            torch.full((total, max(limits)), PAD, device=device),
            torch.zeros(total, device=device),
            torch.zeros(total, dtype=torch.bool, device=device),
            min(limits),
        )

    def add(self, t: int, tokens: Tensor, logits: Tensor) -> Tensor:
        """Write the tokens chosen at step t, and <pad> where a sequence has finished; returns what was written."""
        tokens = tokens.masked_fill(self.finished, PAD)
        chosen = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        self.score += chosen.masked_fill(self.finished, 0.0)
        self.written[:, t] = tokens
        self.finished = self.finished | (tokens == EOS)
        if t + 1 >= self.first_limit:
            self.finished = self.finished | (self.limit <= t + 1)
        return tokens

    def pick(self, rows: Tensor) -> RunningSequences:
        index, limit, written, score, finished = (
            part.index_select(0, rows) for part in (self.index, self.limit, self.written, self.score, self.finished)
        )
        return RunningSequences(index, limit, written, score, finished, self.first_limit)

    def hypotheses(self) -> list[tuple[int, Hypothesis]]:
        rows = zip(self.index.tolist(), self.written.tolist(), self.score.tolist(), strict=True)
        return [(number, _hypothesis(row, score, score)) for number, row, score in rows]


@dataclass
class FinishedHypotheses:
    """The best hypotheses that have ended, best first, of every sentence that is still searched."""

    index: Tensor  # [G]: the number of the sentence
    limit: Tensor  # [G]
    score: Tensor  # [G, width], −inf: none
    log_probability: Tensor  # [G, width]
    tokens: Tensor  # [G, width, room]
    first_limit: int  # no limit is reached before this step

    @classmethod
    def begin(cls, limits: list[int], width: int, device: torch.device) -> FinishedHypotheses:
        none = torch.full((len(limits), width), float("-inf"), device=device)
        tokens = torch.full((len(limits), width, max(limits)), PAD, device=device)
        index = torch.arange(len(limits), device=device)
        return cls(index, torch.tensor(limits, device=device), none, none, tokens, min(limits))

    def stops(self, token: Tensor, t: int) -> Tensor:
        """[G, C] candidates of step t -> which of them end."""
        stops = token == EOS
        return stops | (self.limit <= t + 1)[:, None] if t + 1 >= self.first_limit else stops

    def add(
        self, history: Tensor, parent: Tensor, token: Tensor, log_probability: Tensor, t: int, alpha: float
    ) -> None:
        """Merge candidates [G, C] of step t (−inf: has not ended) into the best so far."""
        width, room = self.score.size(1), history.size(-1)
        score = torch.cat([self.score, log_probability / (t + 1) ** alpha], 1)
        self.score, order = score.topk(width)
        self.log_probability = torch.cat([self.log_probability, log_probability], 1).gather(1, order)
        paths = history.gather(1, parent[:, :, None].expand(-1, -1, room))
        paths[:, :, t] = token
        self.tokens = torch.cat([self.tokens, paths], 1).gather(1, order[:, :, None].expand(-1, -1, room))

    def pick(self, groups: Tensor) -> FinishedHypotheses:
        index, limit, score, log_probability, tokens = (
            part.index_select(0, groups)
            for part in (self.index, self.limit, self.score, self.log_probability, self.tokens)
        )
        return FinishedHypotheses(index, limit, score, log_probability, tokens, self.first_limit)

    def hypotheses(self) -> list[tuple[int, list[Hypothesis]]]:
        """Those of each sentence, with its number."""
        parts = (self.index, self.tokens, self.score, self.log_probability)
        return [
            (number, [_hypothesis(*one) for one in zip(*sentence, strict=True) if one[1] > float("-inf")])
            for number, *sentence in zip(*(part.tolist() for part in parts), strict=True)
        ]


def _hypothesis(row: list[int], score: float, log_probability: float) -> Hypothesis:
    end = next((i for i, token in enumerate(row) if token in (EOS, PAD)), len(row))
    return Hypothesis(tuple(row[:end]), score, log_probability)


def should_check_finished(device: torch.device, t: int) -> bool:
    """Whether to check after step t which sentences have finished: on a GPU seldom, as the host waits for it."""
    return device.type == "cpu" or t % 8 == 7
