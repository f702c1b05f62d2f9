"""Greedy search, sampling and beam search that leave finished sentences behind and seldom wait for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.decoding.beam import beam_search
from seqloom.decoding.greedy import decode_stepwise, most_likely
from seqloom.decoding.hypotheses import EndedHypotheses, Hypothesis
from seqloom.decoding.sampling import Choose
from seqloom.decoding.search_options import DEFAULT, Search
from seqloom.decoding.token_filter import TokenFilter
from seqloom.fast.malloc import retain_freed_memory
from seqloom.models.seq2seq import Stepper


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

    def numbered(self) -> list[tuple[int, Hypothesis]]:
        rows = zip(self.index.tolist(), self.written.tolist(), self.score.tolist(), strict=True)
        return [(number, Hypothesis.of(row, score, score)) for number, row, score in rows]


@dataclass
class EndedOfSome(EndedHypotheses):
    """Of the sentences that are still searched."""

    index: Tensor  # [G]: the number of the sentence
    limit: Tensor  # [G]
    first_limit: int  # no limit is reached before this step

    @classmethod
    def begin(cls, limits: list[int], width: int, device: torch.device) -> EndedOfSome:
        none = EndedHypotheses.none(len(limits), width, max(limits), device)
        index, limit = torch.arange(len(limits), device=device), torch.tensor(limits, device=device)
        return cls(none.score, none.log_probability, none.tokens, index, limit, min(limits))

    def stops(self, token: Tensor, t: int) -> Tensor:
        """[G, C] candidates of step t -> which of them end."""
        stops = token == EOS
        return stops | (self.limit <= t + 1)[:, None] if t + 1 >= self.first_limit else stops

    def pick(self, groups: Tensor) -> EndedOfSome:
        score, log_probability, tokens, index, limit = (
            part.index_select(0, groups)
            for part in (self.score, self.log_probability, self.tokens, self.index, self.limit)
        )
        return EndedOfSome(score, log_probability, tokens, index, limit, self.first_limit)

    def numbered(self) -> list[tuple[int, list[Hypothesis]]]:
        return list(zip(self.index.tolist(), self.hypotheses(), strict=True))


def _checks(device: torch.device, t: int) -> bool:
    """Whether to check after step t which sentences have finished: on a GPU seldom, as the host waits for it."""
    return device.type == "cpu" or t % 8 == 7


def _many_finished(left: int, all_of_them: int) -> bool:
    """Finished sentences are removed whole, as their encoded source goes with them; and not for a few, as removing
    copies the state."""
    return 8 * left <= 7 * all_of_them


def _any_stepper(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    choose: Choose = most_likely,
    width: int = 1,
    search: Search = DEFAULT,
) -> bool:
    return True


@twin_of(decode_stepwise, _any_stepper, hooks=True)
def stepwise(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    choose: Choose = most_likely,
    width: int = 1,
    search: Search = DEFAULT,
) -> list[list[Hypothesis]]:
    device, room = source.tokens.device, max(limits)
    if device.type == "cpu":
        retain_freed_memory()
    state = stepper.start(source, width=width, room=room)
    running = RunningSequences.begin(limits, width, device)
    tokens = torch.full((len(limits) * width,), BOS, device=device)
    done: list[RunningSequences] = []
    token_filter = TokenFilter(search)
    for t in range(room):
        logits, state = stepper.step(tokens[:, None], state)
        logits = token_filter(logits[:, -1], t, running.limit)
        tokens = running.add(t, choose(logits, t, running.index), logits)
        if not _checks(device, t):
            continue
        left = len(running.finished) - int(running.finished.sum())
        if left == 0:
            break
        if _many_finished(left, len(running.finished)):
            active = (~running.finished).view(-1, width).any(1)
            sentences = active.nonzero()[:, 0]
            rows = (sentences[:, None] * width + torch.arange(width, device=device)).flatten()
            done.append(running.pick((~active).repeat_interleave(width).nonzero()[:, 0]))
            state, running, tokens = state.pick(rows, sentences), running.pick(rows), tokens[rows]
    numbered = [hypothesis for part in (*done, running) for hypothesis in part.numbered()]
    flat = [hypothesis for _, hypothesis in sorted(numbered, key=lambda pair: pair[0])]
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def _any_beam(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, search: Search = DEFAULT
) -> bool:
    return True


@twin_of(beam_search, _any_beam, hooks=True)
def beam(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, search: Search = DEFAULT
) -> list[list[Hypothesis]]:
    device, room, count = source.tokens.device, max(limits), len(limits)
    if device.type == "cpu":
        retain_freed_memory()
    state = stepper.start(source, width=width, room=room)
    ended, token_filter, done = EndedOfSome.begin(limits, width, device), TokenFilter(search), []
    live = torch.full((count, width), float("-inf"), device=device)  # log-probabilities
    live[:, 0] = 0.0
    history = torch.full((count, width, room), PAD, device=device)
    tokens, first = torch.full((count * width, 1), BOS, device=device), torch.arange(2 * width, device=device) < width
    sentences = torch.arange(count, device=device)
    for t in range(room):
        logits, state = stepper.step(tokens, state)
        limit = ended.limit.repeat_interleave(width) if search.close else ended.limit
        log_p = token_filter(logits[:, -1], t, limit).log_softmax(-1).view(len(live), width, -1)
        score, flat = (live[:, :, None] + log_p).flatten(1).topk(2 * width)
        parent = flat // log_p.size(-1)
        token = flat - parent * log_p.size(-1)
        stops = ended.stops(token, t)
        if device.type != "cpu" or bool(stops.any()):  # on a CPU, checking costs less than merging nothing
            candidates = torch.where(stops & first, score, float("-inf"))
            ended.add(candidates, _extended(history, parent, token, t), t + 1, alpha)
            live, best = score.masked_fill(stops, float("-inf")).topk(width)
            token, parent = token.gather(1, best), parent.gather(1, best)
        else:
            live, token, parent = score[:, :width], token[:, :width], parent[:, :width]
        active = (live[:, 0] / (t + 1) ** alpha > ended.score[:, -1]) & (live[:, 0] > float("-inf"))
        live = live.masked_fill(~active[:, None], float("-inf"))  # a sentence that is done stays done
        history = _extended(history, parent, token, t)
        remaining = None  # which sentences stay, where some are removed
        if _checks(device, t):
            left = int(active.sum())
            if left == 0:
                break
            if _many_finished(left, len(active)):
                remaining = active.nonzero()[:, 0]
                done.append(ended.pick((~active).nonzero()[:, 0]))
                live, history, token, parent = live[remaining], history[remaining], token[remaining], parent[remaining]
                ended = ended.pick(remaining)
        rows = ((sentences[: len(parent)] if remaining is None else remaining)[:, None] * width + parent).flatten()
        state, tokens = state.pick(rows, remaining), token.reshape(-1, 1)
    numbered = sorted((one for part in (*done, ended) for one in part.numbered()), key=lambda pair: pair[0])
    return [hypotheses for _, hypotheses in numbered]


def _extended(history: Tensor, parent: Tensor, token: Tensor, t: int) -> Tensor:
    """[G, W, room] -> [G, C, room]: candidate c is the history `parent` [G, C] with `token` [G, C] at step t."""
    paths = history.gather(1, parent[:, :, None].expand(-1, -1, history.size(-1)))
    paths[:, :, t] = token
    return paths
