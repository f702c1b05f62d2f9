"""Sliding-window attention: each position sees its neighbors, at a cost of length times window."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import (
    EfficientAttention,
    at_least,
    dense_attention,
    grouped_attention,
    pad_time,
)
from seqloom.parts.state import MixerState, State
from seqloom.parts.visibility import Visibility

CHUNK = 128  # queries in a chunk at most


class Window(EfficientAttention):
    """Sliding-window attention: y_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i − j| < window, causal also j ≤ i
    (Beltagy et al. 2020, section 3.1, https://arxiv.org/abs/2004.05150; as in Child et al. 2019).

    L layers reach L·(window − 1) positions on each side. The state is the last window of keys and values. Reports its
    weights, [B, heads, T, S].
    """

    bounded = True

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES], window: int = 256) -> None:
        super().__init__(dim, heads, score)
        self.window = at_least("window", window)

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: MixerState | None
    ) -> tuple[Tensor, State]:
        before = 0
        if state is not None:
            k, v = (torch.cat([*state.parts[i : i + 1], new], 2) for i, new in enumerate((k, v)))
            before = k.size(2) - q.size(2)
            last = max(0, k.size(2) - self.window + 1)
            state = MixerState(state.used + q.size(2), (k[:, :, last:], v[:, :, last:]))
        visible = replace(visible, window=self.window, offset=before)
        if q.size(2) == 1:  # sees all keys of the state
            visible = replace(visible, window=None)
        if self.probe is not None or q.size(2) == 1:
            return dense_attention(q, k, v, visible, self.probe), state
        return window_attention(pad_time(q, before, 0), k, v, visible)[:, :, before:], state


@accelerated
def window_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, first: int = 0) -> Tensor:
    """softmax(q·kᵀ) v over the window of `visible`, and over the `first` positions at any distance; all [B, heads, T,
    D]. A chunk of queries sees the keys from window − 1 before its first to window − 1 after its last, so memory is
    length times window.
    """
    n, lengths = q.size(2), visible.lengths
    window = min(visible.window or 1, n)
    chunk, ahead = min(window, CHUNK), 0 if visible.causal else window - 1
    start = torch.arange(0, n, chunk, device=q.device)[:, None]
    query = start + torch.arange(chunk, device=q.device)  # [N, chunk], positions
    beside = start + torch.arange(1 - window, chunk + ahead, device=q.device)
    firsts = torch.arange(min(first, n), device=q.device).expand(len(start), -1)
    key = torch.cat([firsts, beside], 1)  # [N, S]
    distance = query[:, :, None] - key[:, None]
    keep = ((key >= first) & (key < n))[:, None] & (distance.abs() < window)
    keep[:, :, : firsts.size(1)] = True
    if visible.causal:
        keep = keep & (distance >= 0)
    keep = keep[None]
    if lengths is not None and not visible.causal:  # causal, a real position never sees a padded one
        keep = keep & (key < lengths[:, None, None])[:, :, None]
    query, key = query.clamp(max=n - 1), key.clamp(0, n - 1)
    y = grouped_attention(q[:, :, query], k[:, :, key], v[:, :, key], keep[:, None])
    return y.flatten(2, 3)[:, :, :n]
