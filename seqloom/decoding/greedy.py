"""Greedy search and sampling: one token at a time, chosen by a function of the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import accelerated
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.sampling import Choose
from seqloom.decoding.search_options import DEFAULT, Search
from seqloom.decoding.token_filter import TokenFilter
from seqloom.models.seq2seq import Stepper


def most_likely(logits: Tensor, *_: object) -> Tensor:
    """[R, V] -> [R]: greedy search."""
    return logits.argmax(-1)


@accelerated
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
    limit = torch.tensor(limits, device=device).repeat_interleave(width)
    tokens, written = torch.full_like(limit, BOS), torch.full((len(limit), room), PAD, device=device)
    score, finished = torch.zeros(len(limit), device=device), torch.zeros_like(limit, dtype=torch.bool)
    state, token_filter = stepper.start(source, width=width, room=room), TokenFilter(search)
    for t in range(room):
        logits, state = stepper.step(tokens[:, None], state)
        logits = token_filter(logits[:, -1], t, limit)
        tokens = choose(logits, t).masked_fill(finished, PAD)
        chosen = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        score += chosen.masked_fill(finished, 0.0)
        written[:, t] = tokens
        finished |= (tokens == EOS) | (limit <= t + 1)
        if finished.all():
            break
    rows = [Hypothesis.of(row, one, one) for row, one in zip(written.tolist(), score.tolist(), strict=True)]
    return [rows[i : i + width] for i in range(0, len(rows), width)]
