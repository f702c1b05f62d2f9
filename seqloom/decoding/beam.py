"""Beam search."""

from __future__ import annotations

import torch

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS, PAD
from seqloom.decoding.hypotheses import FinishedHypotheses, Hypothesis, should_check_finished
from seqloom.decoding.search_options import DEFAULT, Search
from seqloom.decoding.token_filter import TokenFilter
from seqloom.models.seq2seq import Stepper


def beam_search(
    stepper: Stepper, source: Padded, limits: list[int], width: int, alpha: float, search: Search = DEFAULT
) -> list[list[Hypothesis]]:
    """Beam search (Graves 2012; Sutskever et al. 2014, section 3.2), ranked by log p / length^alpha.

    A sentence is done when `width` hypotheses have ended and no live one scores better than the worst of them now.
    """
    device, room, count = source.tokens.device, max(limits), len(limits)
    state = stepper.start(source, width=width, room=room)
    ended, token_filter, done = FinishedHypotheses.begin(limits, width, device), TokenFilter(search), []
    live = torch.full((count, width), float("-inf"), device=device)  # log-probabilities
    live[:, 0] = 0.0  # all hypotheses start alike: only the first is extended at first
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
            # An ending counts only among the best `width`.
            ended.add(history, parent, token, torch.where(stops & first, score, float("-inf")), t, alpha)
            live, best = score.masked_fill(stops, float("-inf")).topk(width)
            token, parent = token.gather(1, best), parent.gather(1, best)
        else:
            live, token, parent = score[:, :width], token[:, :width], parent[:, :width]
        active = (live[:, 0] / (t + 1) ** alpha > ended.score[:, -1]) & (live[:, 0] > float("-inf"))
        live = live.masked_fill(~active[:, None], float("-inf"))  # a sentence that is done stays done
        history = history.gather(1, parent[:, :, None].expand(-1, -1, room))
        history[:, :, t] = token
        remaining = None  # which sentences stay, where some are removed
        if should_check_finished(device, t):
            left = int(active.sum())
            if left == 0:
                break
            if 8 * left <= 7 * len(active):
                remaining = active.nonzero()[:, 0]
                done.append(ended.pick((~active).nonzero()[:, 0]))
                live, history, token, parent = live[remaining], history[remaining], token[remaining], parent[remaining]
                ended = ended.pick(remaining)
        rows = ((sentences[: len(parent)] if remaining is None else remaining)[:, None] * width + parent).flatten()
        state, tokens = state.pick(rows, remaining), token.reshape(-1, 1)
    numbered = sorted(one for part in (*done, ended) for one in part.hypotheses())
    return [hypotheses for _, hypotheses in numbered]
