"""Attention within a window: each place sees its neighbours, so that the cost is length times window."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Annotated, Any

import torch
from torch import Tensor

from seqloom.build import Choice
from seqloom.fast.attention import window_cpu
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.head_projections import Heads, at_least, by_head, dense, folded, padded, places
from seqloom.parts.state import Kept, State
from seqloom.parts.visibility import See

BLOCK = 128  # queries and keys of FlexAttention's blocks
CHUNK = 128  # queries taken together; each set of keys is read once for all of them
PROGRAMS = 64  # of FlexAttention's, one for each window and way to see, with and without gradients


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
    D]. Lowering: the dense kernel where the window holds everything, FlexAttention on a GPU, slices of long rows on a
    CPU, else chunks."""
    n = q.size(2)
    assert see.window is not None
    if see.window >= n:
        return dense(q, k, v, replace(see, window=None, offset=0))
    if window_cpu.supported(q, k, v, see):
        return window_cpu.window_attention(q, k, v, see, first)
    return _flex(q, k, v, see, first) if _flexible(q, see) else chunked(q, k, v, see, first)


def chunked(q: Tensor, k: Tensor, v: Tensor, see: See, first: int = 0) -> Tensor:
    """`near` with plain kernels: `chunk` queries see their own chunk of keys and the ones beside it."""
    n, window = q.size(2), see.window or 1
    chunk, first = min(window, CHUNK), min(first, n)
    count, back = -(-n // chunk), -(-(window - 1) // chunk) * chunk
    size, spare = back + chunk + (0 if see.causal else back), count * chunk - n
    bias = q.new_zeros(()).masked_fill(~_keep((count, chunk, size, back), n, see, first, q.device), float("-inf"))

    def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        asked = padded(q, 0, spare).unflatten(2, (count, chunk))
        beside = [padded(x, back, size - back - chunk + spare).unfold(2, size, chunk).mT for x in (k, v)]
        if first:
            known = [x[:, :, None, :first].expand(-1, -1, count, -1, -1) for x in (k, v)]
            beside = [torch.cat(pair, 3) for pair in zip(known, beside, strict=True)]
        return folded(asked, beside[0], beside[1], bias[:, None]).flatten(2, 3)[:, :, :n]

    return by_head(mixed, q, k, v, times=size // chunk)


def _keep(sizes: tuple[int, int, int, int], n: int, see: See, first: int, device: torch.device) -> Tensor:
    """[B or 1, N, T, first + S]: what the queries of each chunk see of the first places and of those beside them."""
    count, chunk, size, back = sizes
    at, key = places(count, chunk, chunk, 0, device), places(count, size, chunk, -back, device)
    far = torch.arange(back, back + chunk, device=device)[:, None] - torch.arange(size, device=device)
    band = (far < (see.window or n)) & (far > (-1 if see.causal else -(see.window or n)))
    real, known = ((key >= first) & (key < n))[None], torch.arange(first, device=device)
    if see.lengths is not None and not see.causal:  # where it writes, a real place never sees a padded one
        real = real & (key < see.lengths[:, None, None])
        known = (known < see.lengths[:, None])[:, None, None].expand(-1, count, chunk, -1)
    else:
        known = (known <= at[:, :, None] if see.causal else known.expand(count, chunk, -1) >= 0)[None]
    return torch.cat([known, band & real[:, :, None]], -1)


def _flexible(q: Tensor, see: See) -> bool:
    """Whether FlexAttention has a kernel for it, which need not be planned anew for each batch's lengths."""
    fitting = q.dtype != torch.float64 and q.size(-1) in (16, 32, 64, 128, 256) and q.size(2) > CHUNK
    return q.is_cuda and fitting and (see.causal or see.lengths is None)


def _flex(q: Tensor, k: Tensor, v: Tensor, see: See, first: int) -> Tensor:
    """The same by torch's FlexAttention (Dong et al. 2024, https://arxiv.org/abs/2412.05496), which skips the blocks
    in which nothing is seen."""
    mask = _blocks(q.size(2), see.window or 1, see.causal, first, q.device)
    # Beyond its limit, eight by default, torch would no longer compile but make all n × n scores.
    with torch.compiler.config.patch(recompile_limit=PROGRAMS):  # pyright: ignore[reportAttributeAccessIssue]
        return _compiled()(q, k, v, block_mask=mask, scale=1.0)


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@lru_cache(64)  # as many lengths as are met again and again
def _blocks(n: int, window: int, causal: bool, first: int, device: torch.device) -> Any:
    """FlexAttention's plan, from the blocks' own distances: torch's would look at all n × n pairs."""
    from torch.nn.attention.flex_attention import BlockMask

    def seen(b: Tensor, h: Tensor, at: Tensor, key: Tensor) -> Tensor:
        close = (at - key < window) & (key - at < window) | (key < first)
        return close & (at >= key) if causal else close

    start = torch.arange(0, n, BLOCK)
    near, far = start[:, None] - start - BLOCK + 1, start[:, None] - start + BLOCK - 1  # least and greatest distance
    some, every = (far > -window) & (near < window) | (start < first), (near > -window) & (far < window)
    every = every | (start + BLOCK <= first)
    if causal:
        some, every = some & (far >= 0), every & (near >= 0)
    whole = start + BLOCK <= n
    every = every & whole & whole[:, None]
    partly, wholly = (_listed(part, device) for part in (some & ~every, every))
    return BlockMask.from_kv_blocks(*partly, *wholly, BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(n, n))


def _listed(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """[Q, K] bool -> how many blocks of keys each of queries has, [1, 1, Q], and which, [1, 1, Q, K], those first."""
    which = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return tuple(part.to(device, torch.int32)[None, None] for part in (blocks.sum(-1), which))  # pyright: ignore
