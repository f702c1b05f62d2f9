"""Greedy and beam search on tensors of fixed shapes: twins of `decode_stepwise` and `beam_search` without a word to the
host in between.

What a search did is noted down step by step, a row a step; the host reads it when all is done. Sentences that have
ended stay where they are and change nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.hypotheses import Hypothesis, RunningSequences
from seqloom.decoding.options import Search
from seqloom.fast.cuda_graphs.fixed_shape_decoder import Fixed

CHUNK = 128  # tokens of which only the best is looked at, at first
NONE = float("-inf")


class FixedShapeSearch:
    """What both have: the rules, and who has how many steps. `left`: whether anyone is still at it."""

    def __init__(self, fixed: Fixed, first: bool, close: bool) -> None:
        self.fixed, self.first, self.close = fixed, first, close
        self.size = -(-fixed.size // CHUNK) * CHUNK  # so that it can be cut into chunks
        device, shape = fixed.at.device, fixed.shape
        self.said = torch.full((shape.rows, self.size), NONE, device=device)
        self.opening, self.closing = self.said[0].clone(), self.said[0].clone()
        self.closing[EOS] = 0.0
        self.last = torch.full((shape.sentences,), -1, device=device)  # the step that a sentence's limit allows
        self.penalty = torch.ones(shape.room, device=device)
        self.left = torch.zeros(1, dtype=torch.bool, device=device)
        # On the device: a number of the host's would be written there at every step.
        self.none, self.nothing = torch.tensor(NONE, device=device), torch.zeros((), device=device)
        self.pad = torch.tensor(PAD, device=device)

    def ask(self, limits: list[int], search: Search) -> Tensor:
        """What is asked for this time; gives what is added to the logits [V]."""
        spare = self.fixed.shape.sentences - len(limits)
        self.last.copy_(torch.tensor([*(limit - 1 for limit in limits), *[-1] * spare]), non_blocking=True)
        powers = [(t + 1) ** search.alpha for t in range(len(self.penalty))]
        self.penalty.copy_(torch.tensor(powers, dtype=self.penalty.dtype), non_blocking=True)
        if search.first is not None:
            self.opening.fill_(NONE)[search.first] = 0.0
        silence = torch.zeros(self.fixed.size)
        silence[[PAD, BOS, UNK, *search.never]] = NONE
        return silence

    def allowed_logits(self, span: int) -> Tensor:
        """A step's logits [R, size] in float32, without what may not be written there."""
        at, shape = self.fixed.at, self.fixed.shape
        self.said[:, : self.fixed.size].copy_(self.fixed.step(span))
        said = self.said
        if self.first:
            said = torch.where(at == 0, self.opening, said)
        if self.close:
            due = (self.last <= at)[:, None].expand(-1, shape.width).reshape(-1, 1)
            said = torch.where(due, self.closing, said)
        return said


class FixedShapeGreedy(FixedShapeSearch):
    """The likeliest token at every step."""

    def __init__(self, fixed: Fixed, first: bool, close: bool) -> None:
        super().__init__(fixed, first, close)
        rows, room, device = fixed.shape.rows, fixed.shape.room, fixed.at.device
        self.alive = torch.zeros(rows, dtype=torch.bool, device=device)
        self.score = torch.zeros(rows, device=device)
        self.written = torch.full((rows, room), PAD, device=device)

    def begin(self) -> None:
        torch.ge(self.last, 0, out=self.alive)
        self.score.zero_()
        self.written.fill_(PAD)

    def step(self, span: int) -> None:
        at, said = self.fixed.at, self.allowed_logits(span)
        peaks, places = said.view(len(said), -1, CHUNK).max(-1)  # in two steps: many can work at the first
        chunk = peaks.argmax(-1, keepdim=True)
        likeliest = torch.add(places.gather(1, chunk), chunk, alpha=CHUNK)[:, 0]
        tokens = torch.where(self.alive, likeliest, self.pad)
        chosen = said.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        self.score += torch.where(self.alive, chosen, self.nothing)
        self.written.index_copy_(1, at, tokens[:, None])
        self.fixed.tokens.copy_(tokens)
        self.alive &= tokens != EOS
        self.alive &= self.last > at
        torch.any(self.alive, 0, True, out=self.left)
        at += 1

    def found(self, count: int, steps: int, n_best: int) -> list[list[Hypothesis]]:
        """Of the first `count` sentences."""
        parts = (self.last, self.written[:, :steps], self.score, self.alive)
        limit, written, score, alive = (part[:count].cpu() for part in parts)
        walks = RunningSequences(torch.arange(count), limit, written, score, ~alive, 0)
        return [[hypothesis] for _, hypothesis in walks.hypotheses()]


class FixedShapeBeam(FixedShapeSearch):
    """Of every step it notes down what ended and what went on, as codes: row·size + token. Rows are those of the step
    before, so that a hypothesis is read backwards, from its end to its beginning."""

    def __init__(self, fixed: Fixed, first: bool, close: bool) -> None:
        super().__init__(fixed, first, close)
        sentences, width, room, _ = fixed.shape
        device = fixed.at.device
        self.live = torch.full((sentences, width), NONE, device=device)
        self.best = torch.full_like(self.live, NONE)  # of those that have ended, as they are ranked
        self.ends = torch.full((room, sentences, width), NONE, device=device)  # log-probabilities
        self.ended = torch.zeros((room, sentences, width), dtype=torch.long, device=device)
        self.went = torch.zeros_like(self.ended)
        self.rows = torch.arange(fixed.shape.rows, device=device)[:, None] * self.size
        self.chunk = (self.rows + torch.arange(CHUNK, device=device))[:, None]
        self.wanted = min(2 * width, self.size)

    def begin(self) -> None:
        self.live.fill_(NONE)
        self.live[:, 0].masked_fill_(self.last >= 0, 0.0)  # all start alike: only one of them may speak first
        self.best.fill_(NONE)

    def step(self, span: int) -> None:
        at, width = self.fixed.at, self.fixed.shape.width
        value, code = self.likeliest(self.allowed_logits(span).log_softmax(-1))
        total = value.view(len(self.live), width, -1) + self.live[:, :, None]
        score, order = total.flatten(1).topk(2 * width)
        code = code.view(len(self.live), -1).gather(1, order)
        stops = (code % self.size == EOS) | (self.last <= at)[:, None]
        ends = torch.where(
            stops[:, :width], score[:, :width], self.none
        )  # an ending counts only among the best `width`
        self.ends.index_copy_(0, at, ends[None])
        self.ended.index_copy_(0, at, code[None, :, :width])
        penalty = self.penalty.index_select(0, at)
        self.best.copy_(torch.cat([self.best, ends / penalty], 1).topk(width).values)
        live, order = torch.where(stops, self.none, score).topk(width)
        going = live[:, :1] / penalty > self.best[:, -1:]
        torch.where(going, live, self.none, out=self.live)
        code = code.gather(1, order)
        self.went.index_copy_(0, at, code[None])
        self.fixed.pick(code // self.size)
        # What nobody can write has no vector; only hypotheses that are dead come to it.
        torch.clamp((code % self.size).flatten(), max=self.fixed.size - 1, out=self.fixed.tokens)
        torch.any(going[:, 0], 0, True, out=self.left)
        at += 1

    def likeliest(self, said: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row [R, size] as many as can matter, and their codes. The best of them all lie in the chunks whose
        best are the best: to look there takes less than a search through everything."""
        if self.size // CHUNK <= self.wanted:
            value, token = said.topk(self.wanted)
            return value, token + self.rows
        chunks = said.view(len(said), -1, CHUNK).amax(-1).topk(self.wanted, sorted=False).indices
        code = torch.add(self.chunk, chunks[:, :, None], alpha=CHUNK).flatten(1)
        value, place = said.view(-1).index_select(0, code.view(-1)).view_as(code).topk(self.wanted)
        return value, code.gather(1, place)

    def found(self, count: int, steps: int, n_best: int) -> list[list[Hypothesis]]:
        """Of the first `count` sentences, best first."""
        ends, ended, went = (part[:steps].cpu() for part in (self.ends, self.ended, self.went))
        ranked = ends / self.penalty[:steps, None, None].cpu()
        width = ends.size(2)
        score, place = ranked[:, :count].transpose(0, 1).flatten(1).topk(n_best)
        step, number = place // width, place % width
        sentence = torch.arange(count)[:, None].expand_as(step)
        code, log_p = ended[step, sentence, number], ends[step, sentence, number]
        tokens = self._traced(code.numpy(), step.numpy(), went.flatten(1).numpy())
        return [
            [_cut(row, *one) for row, *one in zip(*hypotheses, strict=True) if one[1] > NONE]
            for hypotheses in zip(*(part.tolist() for part in (tokens, step, score, log_p)), strict=True)
        ]

    def _traced(self, code: np.ndarray, step: np.ndarray, went: np.ndarray) -> np.ndarray:
        """Codes [G, N] of last tokens and their steps -> [G, N, steps] tokens, <pad> after the end."""
        tokens = np.full((*code.shape, len(went)), PAD)
        for t in range(len(went) - 1, -1, -1):
            reached = step >= t
            row, token = np.divmod(code, self.size)
            tokens[..., t] = np.where(reached, token, PAD)
            if t:
                code = np.where(reached, went[t - 1].take(row), code)
        return tokens


def _cut(row: list[int], step: int, score: float, log_probability: float) -> Hypothesis:
    return Hypothesis(tuple(row[: step + (row[step] != EOS)]), score, log_probability)
