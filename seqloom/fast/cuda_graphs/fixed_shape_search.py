"""Greedy and beam search on tensors of fixed shapes, without synchronizing with the host. They equal `decode_stepwise`
and `beam_search`.

Each step stores its choices in one row of a tensor, which the host reads after the last step. Finished sentences stay
in the batch and change nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search_options import Search
from seqloom.fast.cuda_graphs.fixed_shape_decoder import FixedShapeDecoder

CHUNK = 128  # tokens; a first pass keeps only the best of each chunk
NEG_INF = float("-inf")


class FixedShapeSearch:
    """Constraints on tokens and lengths. `running`: whether any sentence is unfinished."""

    def __init__(self, decoder: FixedShapeDecoder, first: bool, close: bool) -> None:
        self.decoder, self.first, self.close = decoder, first, close
        self.size = -(-decoder.size // CHUNK) * CHUNK  # a multiple of CHUNK
        device, shape = decoder.step_index.device, decoder.shape
        self.logits = torch.full((shape.rows, self.size), NEG_INF, device=device)
        self.first_bias, self.eos_bias = self.logits[0].clone(), self.logits[0].clone()
        self.eos_bias[EOS] = 0.0
        self.last_step = torch.full((shape.sentences,), -1, device=device)  # of each sentence, by its limit
        self.penalty = torch.ones(shape.max_steps, device=device)
        self.running = torch.zeros(1, dtype=torch.bool, device=device)
        # On the device: a Python number would be copied there at every step.
        self.neg_inf, self.zero = torch.tensor(NEG_INF, device=device), torch.zeros((), device=device)
        self.pad = torch.tensor(PAD, device=device)

    def set_request(self, limits: list[int], search: Search) -> Tensor:
        """Copies limits and options; returns the bias of the logits [V] that forbids tokens."""
        padding_rows = self.decoder.shape.sentences - len(limits)
        self.last_step.copy_(torch.tensor([*(limit - 1 for limit in limits), *[-1] * padding_rows]), non_blocking=True)
        powers = [(t + 1) ** search.alpha for t in range(len(self.penalty))]
        self.penalty.copy_(torch.tensor(powers, dtype=self.penalty.dtype), non_blocking=True)
        if search.first is not None:
            self.first_bias.fill_(NEG_INF)[search.first] = 0.0
        logit_bias = torch.zeros(self.decoder.size)
        logit_bias[[PAD, BOS, UNK, *search.never]] = NEG_INF
        return logit_bias

    def allowed_logits(self, visible_steps: int) -> Tensor:
        """A step's logits [R, size] in float32; −inf for tokens that are forbidden there."""
        step_index, shape = self.decoder.step_index, self.decoder.shape
        self.logits[:, : self.decoder.size].copy_(self.decoder.step(visible_steps))
        logits = self.logits
        if self.first:
            logits = torch.where(step_index == 0, self.first_bias, logits)
        if self.close:
            at_limit = (self.last_step <= step_index)[:, None].expand(-1, shape.width).reshape(-1, 1)
            logits = torch.where(at_limit, self.eos_bias, logits)
        return logits


class FixedShapeGreedy(FixedShapeSearch):
    """The likeliest token at every step."""

    def __init__(self, decoder: FixedShapeDecoder, first: bool, close: bool) -> None:
        super().__init__(decoder, first, close)
        rows, max_steps, device = decoder.shape.rows, decoder.shape.max_steps, decoder.step_index.device
        self.active = torch.zeros(rows, dtype=torch.bool, device=device)
        self.score = torch.zeros(rows, device=device)
        self.tokens_written = torch.full((rows, max_steps), PAD, device=device)

    def begin(self) -> None:
        torch.ge(self.last_step, 0, out=self.active)
        self.score.zero_()
        self.tokens_written.fill_(PAD)

    def step(self, visible_steps: int) -> None:
        step_index, logits = self.decoder.step_index, self.allowed_logits(visible_steps)
        chunk_maxima, chunk_tokens = logits.view(len(logits), -1, CHUNK).max(
            -1
        )  # two passes: the first is parallel over chunks
        chunk = chunk_maxima.argmax(-1, keepdim=True)
        best = torch.add(chunk_tokens.gather(1, chunk), chunk, alpha=CHUNK)[:, 0]
        tokens = torch.where(self.active, best, self.pad)
        chosen = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        self.score += torch.where(self.active, chosen, self.zero)
        self.tokens_written.index_copy_(1, step_index, tokens[:, None])
        self.decoder.tokens.copy_(tokens)
        self.active &= tokens != EOS
        self.active &= self.last_step > step_index
        torch.any(self.active, 0, True, out=self.running)
        step_index += 1

    def hypotheses(self, count: int, steps: int, n_best: int) -> list[list[Hypothesis]]:
        """Of the first `count` sentences."""
        tokens_written, score = (part[:count].tolist() for part in (self.tokens_written[:, :steps], self.score))
        return [[Hypothesis.of(row, one, one)] for row, one in zip(tokens_written, score, strict=True)]


class FixedShapeBeam(FixedShapeSearch):
    """Each step stores which hypotheses ended and which continued, as codes row·size + token. Rows are those of the
    previous step, so a hypothesis is read backwards from its end."""

    def __init__(self, decoder: FixedShapeDecoder, first: bool, close: bool) -> None:
        super().__init__(decoder, first, close)
        sentences, width, max_steps, _ = decoder.shape
        device = decoder.step_index.device
        self.live_scores = torch.full((sentences, width), NEG_INF, device=device)
        self.ended_best = torch.full_like(self.live_scores, NEG_INF)  # of ended hypotheses, with length penalty
        self.ended_scores = torch.full((max_steps, sentences, width), NEG_INF, device=device)  # log-probabilities
        self.ended_codes = torch.zeros((max_steps, sentences, width), dtype=torch.long, device=device)
        self.continued_codes = torch.zeros_like(self.ended_codes)
        self.rows = torch.arange(decoder.shape.rows, device=device)[:, None] * self.size
        self.chunk = (self.rows + torch.arange(CHUNK, device=device))[:, None]
        self.candidates = min(2 * width, self.size)

    def begin(self) -> None:
        self.live_scores.fill_(NEG_INF)
        self.live_scores[:, 0].masked_fill_(self.last_step >= 0, 0.0)  # all start equal: only one is expanded first
        self.ended_best.fill_(NEG_INF)

    def step(self, visible_steps: int) -> None:
        step_index, width = self.decoder.step_index, self.decoder.shape.width
        value, code = self.top_codes(self.allowed_logits(visible_steps).log_softmax(-1))
        total = value.view(len(self.live_scores), width, -1) + self.live_scores[:, :, None]
        score, order = total.flatten(1).topk(2 * width)
        code = code.view(len(self.live_scores), -1).gather(1, order)
        stops = (code % self.size == EOS) | (self.last_step <= step_index)[:, None]
        ended_scores = torch.where(
            stops[:, :width], score[:, :width], self.neg_inf
        )  # only among the best `width` may a hypothesis end
        self.ended_scores.index_copy_(0, step_index, ended_scores[None])
        self.ended_codes.index_copy_(0, step_index, code[None, :, :width])
        penalty = self.penalty.index_select(0, step_index)
        self.ended_best.copy_(torch.cat([self.ended_best, ended_scores / penalty], 1).topk(width).values)
        live_scores, order = torch.where(stops, self.neg_inf, score).topk(width)
        continuing = live_scores[:, :1] / penalty > self.ended_best[:, -1:]
        torch.where(continuing, live_scores, self.neg_inf, out=self.live_scores)
        code = code.gather(1, order)
        self.continued_codes.index_copy_(0, step_index, code[None])
        self.decoder.pick(code // self.size)
        # Columns beyond the vocabulary have no embedding; only dead hypotheses choose them.
        torch.clamp((code % self.size).flatten(), max=self.decoder.size - 1, out=self.decoder.tokens)
        torch.any(continuing[:, 0], 0, True, out=self.running)
        step_index += 1

    def top_codes(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The top `candidates` of each row [R, size] and their codes. They lie in the chunks with the largest maxima,
        and a search of these is faster than one top-k over all."""
        if self.size // CHUNK <= self.candidates:
            value, token = logits.topk(self.candidates)
            return value, token + self.rows
        chunks = logits.view(len(logits), -1, CHUNK).amax(-1).topk(self.candidates, sorted=False).indices
        code = torch.add(self.chunk, chunks[:, :, None], alpha=CHUNK).flatten(1)
        value, index = logits.view(-1).index_select(0, code.view(-1)).view_as(code).topk(self.candidates)
        return value, code.gather(1, index)

    def hypotheses(self, count: int, steps: int, n_best: int) -> list[list[Hypothesis]]:
        """Of the first `count` sentences, best first."""
        ended_scores, ended_codes, continued_codes = (
            part[:steps].cpu() for part in (self.ended_scores, self.ended_codes, self.continued_codes)
        )
        ranked = ended_scores / self.penalty[:steps, None, None].cpu()
        width = ended_scores.size(2)
        score, index = ranked[:, :count].transpose(0, 1).flatten(1).topk(n_best)
        step, rank = index // width, index % width
        sentence = torch.arange(count)[:, None].expand_as(step)
        code, log_p = ended_codes[step, sentence, rank], ended_scores[step, sentence, rank]
        tokens = self._backtrack(code.numpy(), step.numpy(), continued_codes.flatten(1).numpy())
        return [
            [_cut(row, *rest) for row, *rest in zip(*ranking, strict=True) if rest[1] > NEG_INF]
            for ranking in zip(*(part.tolist() for part in (tokens, step, score, log_p)), strict=True)
        ]

    def _backtrack(self, code: np.ndarray, step: np.ndarray, continued_codes: np.ndarray) -> np.ndarray:
        """Codes [G, N] of last tokens and their steps -> [G, N, steps] tokens, <pad> after the end."""
        tokens = np.full((*code.shape, len(continued_codes)), PAD)
        for t in range(len(continued_codes) - 1, -1, -1):
            started = step >= t
            row, token = np.divmod(code, self.size)
            tokens[..., t] = np.where(started, token, PAD)
            if t:
                code = np.where(started, continued_codes[t - 1].take(row), code)
        return tokens


def _cut(row: list[int], step: int, score: float, log_probability: float) -> Hypothesis:
    return Hypothesis(tuple(row[: step + (row[step] != EOS)]), score, log_probability)
