"""The history of a self-attention cell as blocks: autograd saves the history of every step, but of blocks only the last
is a new copy. What training keeps then grows with the length, not with its square."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.acceleration import twin_of
from seqloom.parts.recurrent.self_attention_cells import History, HistoryAttention

Block = tuple[Tensor, ...]  # keys [R, S, K], values [R, S, V], real [R, S]
# Entries per block. A GPU has the memory for larger copies, and every further block costs kernel launches.
BLOCK_SIZE = {"cpu": 32, "cuda": 256}


def _starts(self: HistoryAttention, history: History, h: Tensor, value: Tensor, real: Tensor) -> bool:
    return len(history) == 0


def _continues(self: HistoryAttention, history: History, h: Tensor, value: Tensor, real: Tensor) -> bool:
    return in_blocks(history)


def in_blocks(history: History) -> bool:
    return len(history) > 0 and isinstance(history[0], tuple)


@twin_of(HistoryAttention.append, _continues, own_state=True)
@twin_of(HistoryAttention.append, _starts, compiles=True)
def append(self: HistoryAttention, history: History, h: Tensor, value: Tensor, real: Tensor) -> History:
    last: Block = (self.score.keys(h[:, None]), value[:, None], real)
    if history and history[-1][2].size(1) < BLOCK_SIZE.get(h.device.type, 32):
        last = tuple(torch.cat(pair, 1) for pair in zip(history[-1], last, strict=True))
        history = history[:-1]
    history = (*history, last)
    return history if self.window is None else _last_entries(history, self.window)


def _last_entries(history: History, window: int) -> History:
    """The last `window` entries, of at most one more."""
    if sum(real.size(1) for _, _, real in history) <= window:
        return history
    first = tuple(part[:, 1:] for part in history[0])
    return (first, *history[1:]) if first[2].size(1) else history[1:]


def _reads_blocks(self: HistoryAttention, query: Tensor, history: History) -> bool:
    return in_blocks(history)


@twin_of(HistoryAttention.forward, _reads_blocks, own_state=True)
def attend(self: HistoryAttention, query: Tensor, history: History) -> Tensor:
    scores = _cat([self.score(query[:, None], keys) for keys, _, _ in history])
    real = _cat([real for _, _, real in history])[:, None]
    weights = scores.masked_fill(real == 0, torch.finfo(scores.dtype).min).softmax(-1) * real
    if self.probe:
        self.probe(weights.detach())
    by_block = weights.split([values.size(1) for _, values, _ in history], -1)
    sums = [part.to(values.dtype) @ values for part, (_, values, _) in zip(by_block, history, strict=True)]
    return torch.stack(sums).sum(0)[:, 0] if len(sums) > 1 else sums[0][:, 0]


def _cat(parts: list[Tensor]) -> Tensor:
    """Along the last axis; a single tensor is not copied."""
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
