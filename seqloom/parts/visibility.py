"""Which positions a query may see, stated once for all kinds of attention; and helpers for rows padded at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """What the queries of an attention, T of them, may see of its S keys."""

    causal: bool = False
    window: int | None = None  # distances below it, behind and, if not causal, ahead
    lengths: Tensor | None = None  # [B] real keys, padded after; None: all are real
    bias: Tensor | None = None  # added to the scores, [..., T, S]
    offset: int = 0  # the key position of the first query (decoding with a cache)

    def at_offset(self, offset: int) -> Visibility:
        """The same for queries that start at position `offset`."""
        if offset == self.offset or not (self.causal or self.window):
            return self
        return replace(self, offset=offset)

    def with_bias(self, bias: Tensor | None) -> Visibility:
        """The same with one more bias added."""
        return self if bias is None else replace(self, bias=bias if self.bias is None else self.bias + bias)

    def keep(self, t: int, s: int, device: torch.device) -> Tensor | None:
        """The dense mask, [B or 1, 1, T or 1, S]; None where everything is visible."""
        real = None if self.lengths is None else keep(self.lengths, s)[:, None, None]
        single_newest = t == 1 and self.offset == s - 1  # one query at the last key: causality hides nothing
        if (not self.causal or single_newest) and self.window is None:
            return real
        query, key = torch.arange(t, device=device)[:, None] + self.offset, torch.arange(s, device=device)
        mask = torch.ones(t, s, dtype=torch.bool, device=device)
        if self.causal:
            mask &= key <= query
        if self.window is not None:
            mask &= (query - key).abs() < self.window
        return mask[None, None] if real is None else mask & real


def keep(lengths: Tensor, size: int) -> Tensor:
    """[B] lengths -> [B, size], True at real positions of rows padded after."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def last(states: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S, D] -> [B, D], the state at each row's last real position."""
    if lengths is None:
        return states[:, -1]
    return states[torch.arange(states.size(0), device=states.device), lengths - 1]


def mean(states: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, S, D] -> [B, D], the mean over each row's real positions."""
    if lengths is None:
        return states.mean(1)
    real = keep(lengths, states.size(1))[:, :, None]
    return states.masked_fill(~real, 0.0).sum(1) / lengths[:, None]


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """[R, T, D] with each row's real steps reversed; padding stays at the end."""
    if lengths is None:
        return x.flip(1)
    step = torch.arange(x.size(1), device=x.device)
    index = torch.where(step < lengths[:, None], lengths[:, None] - 1 - step, step)
    return x.gather(1, index[:, :, None].expand_as(x))
