"""Attention within a window: each place sees its neighbours, so that the cost is length times window."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated, Any

import torch
from torch import Tensor

from seqloom.parts.choose import Choice
from seqloom.parts.heads import Heads, at_least, dense, folded, padded, places
from seqloom.parts.score import SCORES
from seqloom.parts.see import See
from seqloom.parts.state import Kept, State

CHUNK = 128  # queries taken together; each set of keys is read once for all of them


class Window(Heads):
    """Sliding-window attention: y_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i − j| < window, and j ≤ i where it writes
    (Beltagy et al. 2020, section 3.1, https://arxiv.org/abs/2004.05150; as in Child et al. 2019).

    Layers add up: after L of them a place knows of L·(window − 1) others on a side. The state is the last window of
    keys and values. Reports its weights, [B, heads, T, S].
    """

    bounded = True

    def __init__(self, dim: int, heads: int, score: Annotated[Choice, SCORES], window: int = 256) -> None:
        super().__init__(dim, heads, score)
        self.window = at_least("window", window)

    def begin(self, room: int | None = None) -> Kept:
        return Kept()

    def mix(self, q: Tensor, k: Tensor, v: Tensor, see: See, state: Kept | None) -> tuple[Tensor, State]:
        before = 0
        if state is not None:
            k, v = (torch.cat([*state.parts[i : i + 1], new], 2) for i, new in enumerate((k, v)))
            before = k.size(2) - q.size(2)
            last = max(0, k.size(2) - self.window + 1)
            state = Kept(state.used + q.size(2), (k[:, :, last:], v[:, :, last:]))
        see = replace(see, window=self.window, offset=before)
        if q.size(2) == 1:  # sees all that is kept
            see = replace(see, window=None)
        if self.probe is not None or q.size(2) == 1:
            return dense(q, k, v, see, self.probe), state
        return near(padded(q, before, 0), k, v, see)[:, :, before:], state


def near(q: Tensor, k: Tensor, v: Tensor, see: See, first: int = 0) -> Tensor:
    """softmax(q·kᵀ) v over the window of `see`, and over the `first` places whatever their distance; all [B, heads, T,
    D]. Lowering: the dense kernel where the window holds everything, FlexAttention on a GPU, else chunks."""
    n = q.size(2)
    assert see.window is not None
    if see.window >= n:
        return dense(q, k, v, replace(see, window=None, offset=0))
    if q.is_cuda and (see.causal or see.lengths is None) and q.size(-1) in (16, 32, 64, 128, 256) and n > CHUNK:
        return _flex(q, k, v, see, first)
    return chunked(q, k, v, see, first)


def chunked(q: Tensor, k: Tensor, v: Tensor, see: See, first: int = 0) -> Tensor:
    """`near` with plain kernels: `chunk` queries see their own chunk of keys and the ones beside it."""
    n, window = q.size(2), see.window or 1
    first = min(first, n)
    chunk = min(window, CHUNK)
    count, back = -(-n // chunk), -(-(window - 1) // chunk) * chunk
    size = back + chunk + (0 if see.causal else back)
    spare = count * chunk - n
    asked = padded(q, 0, spare).unflatten(2, (count, chunk))
    beside = [padded(x, back, size - back - chunk + spare).unfold(2, size, chunk).mT for x in (k, v)]
    at, key = places(count, chunk, chunk, 0, q.device), places(count, size, chunk, -back, q.device)
    keep = _keep(at, key, n, see) & (key >= first)[:, None]
    if first:
        known = torch.arange(first, device=q.device).expand(count, -1)
        keep = torch.cat([_keep(at, known, n, replace(see, window=None)), keep], -1)
        beside = [
            torch.cat([x[:, :, None, :first].expand(-1, -1, count, -1, -1), y], 3)
            for x, y in zip((k, v), beside, strict=True)
        ]
    return folded(asked, *beside, keep[:, None]).flatten(2, 3)[:, :, :n]


def _keep(at: Tensor, key: Tensor, n: int, see: See) -> Tensor:
    """Places of queries [N, T] and of keys [N, S] -> [B or 1, N, T, S]."""
    far = at[:, :, None] - key[:, None]
    keep = ((key >= 0) & (key < n))[:, None].expand_as(far)
    if see.causal:  # rows are padded after: a real place never sees a padded one
        keep = keep & (far >= 0)
    if see.window is not None:
        keep = keep & (far.abs() < see.window)
    if see.lengths is None or see.causal:
        return keep[None]
    return keep & (key < see.lengths[:, None, None])[:, :, None]


def _flex(q: Tensor, k: Tensor, v: Tensor, see: See, first: int) -> Tensor:
    """The same by torch's FlexAttention (Dong et al. 2024, https://arxiv.org/abs/2412.05496), which skips the blocks
    in which nothing is seen."""
    mask = _blocks(q.size(2), see.window, see.causal, first, q.device)
    return _compiled()(q, k, v, block_mask=mask, scale=1.0)


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@cache
def _blocks(n: int, window: int | None, causal: bool, first: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Tensor, h: Tensor, at: Tensor, key: Tensor) -> Tensor:
        close = (at - key < window) & (key - at < window) | (key < first)
        return close & (at >= key) if causal else close

    # Compiled: otherwise it would first write down all n × n pairs.
    return create_block_mask(seen, None, None, n, n, device=device, _compile=True)  # pyright: ignore
