"""The output of every encoder: all that decoders and task heads know of the source."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqloom.parts.state import State


@dataclass(frozen=True, kw_only=True)
class Encoded:
    states: Tensor  # [B, S, dim]
    lengths: Tensor | None  # [B] on the device; None: every row is full, so that no mask is needed
    summary: Tensor  # [B, dim]
    final: State = None  # a recurrent encoder's last state of every layer, for a decoder that starts from it
    layers: tuple[Tensor, ...] = ()  # every layer's states
    views: tuple[Tensor, ...] = ()  # what each layer of the decoder reads, where that is not `states`
    grid: tuple[int, int] | None = None  # rows and columns, where the source is an image
