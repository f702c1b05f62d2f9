"""What a query may see, said once and lowered to the fastest kernel that can do it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class See:
    """`keep` is the only mask word: True where a token is real or may be looked at."""

    causal: bool = False
    window: int | None = None  # how far back (and ahead, if not causal)
    lengths: Tensor | None = None  # [B] real keys, padded after; None: all are real
    bias: Tensor | None = None  # added to the scores, [..., T, S]
    offset: int = 0  # the first query stands at this key (decoding with a cache)

    def after(self, offset: int) -> See:
        """The same for queries of which the first stands at `offset`."""
        if offset == self.offset or not (self.causal or self.window):
            return self
        return replace(self, offset=offset)

    def plus(self, bias: Tensor | None) -> See:
        """The same with one more bias."""
        return self if bias is None else replace(self, bias=bias if self.bias is None else self.bias + bias)

    def keep(self, t: int, s: int, device: torch.device) -> Tensor | None:
        """The dense form, [B or 1, 1, T or 1, S]; None where everything is visible."""
        length = None if self.lengths is None else keep(self.lengths, s)[:, None, None]
        if (not self.causal or self._last(t, s)) and self.window is None:
            return length
        at, key = torch.arange(t, device=device)[:, None] + self.offset, torch.arange(s, device=device)
        seen = torch.ones(t, s, dtype=torch.bool, device=device)
        if self.causal:
            seen &= key <= at
        if self.window is not None:
            seen &= (at - key).abs() < self.window
        return seen[None, None] if length is None else seen & length

    def square(self, t: int, s: int) -> bool:
        """Whether a kernel's own causal triangle does it: right-padded rows need no key mask at their real places."""
        return self.causal and self.window is None and self.bias is None and self.offset == 0 and t == s

    def _last(self, t: int, s: int) -> bool:
        return t == 1 and self.offset == s - 1  # one new query after everything else sees all of it


def keep(lengths: Tensor, size: int) -> Tensor:
    """[B] lengths -> [B, size], True at real places of rows padded after."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def last(states: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S, D] -> [B, D], the state at each row's last real place."""
    if lengths is None:
        return states[:, -1]
    return states[torch.arange(states.size(0), device=states.device), lengths - 1]


def mean(states: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S, D] -> [B, D], the mean over each row's real places."""
    if lengths is None:
        return states.mean(1)
    real = keep(lengths, states.size(1))[:, :, None]
    return states.masked_fill(~real, 0.0).sum(1) / lengths[:, None]


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn each row's real steps round, [R, T, D]; padded ones stay behind them."""
    if lengths is None:
        return x.flip(1)
    at = torch.arange(x.size(1), device=x.device)
    index = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    return x.gather(1, index[:, :, None].expand_as(x))
