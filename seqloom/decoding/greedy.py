"""Greedy search and sampling: one token at a time, chosen by a function of the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.decoding.hypotheses import Hypothesis, RunningSequences, should_check_finished
from seqloom.decoding.sampling import Choose
from seqloom.decoding.search_options import DEFAULT, Search
from seqloom.decoding.token_filter import TokenFilter
from seqloom.models.seq2seq import Stepper


def most_likely(logits: Tensor, *_: object) -> Tensor:
    """[R, V] -> [R]: greedy search."""
    return logits.argmax(-1)


def decode_stepwise(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    choose: Choose = most_likely,
    width: int = 1,
    search: Search = DEFAULT,
) -> list[list[Hypothesis]]:
    """One token at a time by `choose`; `width` independent sequences a sentence."""
    device, room = source.tokens.device, max(limits)
    state = stepper.start(source, width=width, room=room)
    running = RunningSequences.begin(limits, width, device)
    tokens = torch.full((len(limits) * width,), BOS, device=device)
    done: list[RunningSequences] = []
    token_filter = TokenFilter(search)
    for t in range(room):
        logits, state = stepper.step(tokens[:, None], state)
        logits = token_filter(logits[:, -1], t, running.limit)
        tokens = running.add(t, choose(logits, t, running.index), logits)
        if not should_check_finished(device, t):
            continue
        left = len(running.finished) - int(running.finished.sum())
        if left == 0:
            break
        # Finished sentences are removed whole, as their encoded source goes with them; and not for a few, as removing
        # copies the state.
        if 8 * left <= 7 * len(running.finished):
            active = (~running.finished).view(-1, width).any(1)
            sentences = active.nonzero()[:, 0]
            rows = (sentences[:, None] * width + torch.arange(width, device=device)).flatten()
            done.append(running.pick((~active).repeat_interleave(width).nonzero()[:, 0]))
            state, running, tokens = state.pick(rows, sentences), running.pick(rows), tokens[rows]
    numbered = [hypothesis for part in (*done, running) for hypothesis in part.hypotheses()]
    flat = [hypothesis for _, hypothesis in sorted(numbered, key=lambda pair: pair[0])]
    return [flat[i : i + width] for i in range(0, len(flat), width)]
