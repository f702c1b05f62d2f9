"""Beam search."""

from __future__ import annotations

import torch

from seqloom.acceleration import accelerated
from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.decoding.hypotheses import EndedHypotheses, Hypothesis
from seqloom.decoding.search_options import DEFAULT, Search
from seqloom.decoding.token_filter import TokenFilter
from seqloom.models.seq2seq import Stepper

NONE = float("-inf")  # the log-probability of what is not there


@accelerated
def beam_search(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, search: Search = DEFAULT
) -> list[list[Hypothesis]]:
    """Beam search (Graves 2012; Sutskever et al. 2014, section 3.2), ranked by log p / length^alpha.

    A sentence is done when `width` hypotheses have ended and no live one scores better than the worst of them now.
    """
    device, count, room = source.tokens.device, len(limits), max(limits)
    limit, first_row = torch.tensor(limits, device=device)[:, None], width * torch.arange(count, device=device)[:, None]
    live = torch.full((count, width), NONE, device=device)  # log-probabilities
    live[:, 0] = 0.0  # all hypotheses start alike: only the first is extended at first
    tokens, paths = torch.full_like(live, BOS, dtype=torch.long), torch.full((count, width, room), PAD, device=device)
    ended, token_filter = EndedHypotheses.none(count, width, room, device), TokenFilter(search)
    state = stepper.start(source, width=width, room=room)
    for t in range(room):
        logits, state = stepper.step(tokens.view(-1, 1), state)
        log_p = token_filter(logits[:, -1], t, limit.expand(-1, width).flatten()).log_softmax(-1)
        # Every hypothesis is extended by every token; the best 2·width are kept, as `width` of them may end.
        score, place = (live[:, :, None] + log_p.view(count, width, -1)).flatten(1).topk(2 * width)
        parent, tokens = place // log_p.size(-1), place % log_p.size(-1)
        paths = paths.gather(1, parent[:, :, None].expand(-1, -1, room))
        paths[:, :, t] = tokens
        # What ends among the best `width` is a candidate for the answer.
        ends = (tokens == EOS) | (limit <= t + 1)
        ended.add(score.masked_fill(~ends, NONE)[:, :width], paths[:, :width], t + 1, alpha)
        # The best `width` of the others live on, until none can win.
        live, best = score.masked_fill(ends, NONE).topk(width)
        can_win = (live[:, :1] / (t + 1) ** alpha > ended.score[:, -1:]) & (live[:, :1] > NONE)
        if not can_win.any():
            break
        live = live.masked_fill(~can_win, NONE)
        parent, tokens = parent.gather(1, best), tokens.gather(1, best)
        paths = paths.gather(1, best[:, :, None].expand(-1, -1, room))
        state = state.pick((first_row + parent).flatten())
    return ended.hypotheses()
