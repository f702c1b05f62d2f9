"""Hypotheses: what a search has found, and the best that have ended."""

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

    @classmethod
    def of(cls, row: list[int], score: float, log_probability: float) -> Hypothesis:
        """The row up to <eos> or <pad>."""
        end = next((i for i, token in enumerate(row) if token in (EOS, PAD)), len(row))
        return cls(tuple(row[:end]), score, log_probability)


@dataclass
class EndedHypotheses:
    """The `width` best hypotheses of every sentence that have ended, best first."""

    score: Tensor  # [B, width], −inf: none
    log_probability: Tensor  # [B, width]
    tokens: Tensor  # [B, width, room]

    @classmethod
    def none(cls, sentences: int, width: int, room: int, device: torch.device) -> EndedHypotheses:
        score = torch.full((sentences, width), float("-inf"), device=device)
        return cls(score, score, torch.full((sentences, width, room), PAD, device=device))

    def add(self, log_probability: Tensor, paths: Tensor, length: int, alpha: float) -> None:
        """Candidates with log-probabilities [B, C] (−inf: has not ended) and tokens [B, C, room], of `length`."""
        score = torch.cat([self.score, log_probability / length**alpha], 1)
        self.score, order = score.topk(self.score.size(1))
        self.log_probability = torch.cat([self.log_probability, log_probability], 1).gather(1, order)
        self.tokens = torch.cat([self.tokens, paths], 1).gather(1, order[:, :, None].expand(-1, -1, paths.size(2)))

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Those of each sentence."""
        parts = (self.tokens.tolist(), self.score.tolist(), self.log_probability.tolist())
        return [
            [Hypothesis.of(*one) for one in zip(*sentence, strict=True) if one[1] > float("-inf")]
            for sentence in zip(*parts, strict=True)
        ]
