"""Encoder and Decoder, and what passes between them: all that decoders and task heads know of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from seqloom.parts.state import Decoding, State


@dataclass(frozen=True, kw_only=True)
class Encoded:
    states: Tensor  # [B, S, dim]
    lengths: Tensor | None  # [B] on the device; None: every row is full, so that no mask is needed
    summary: Tensor  # [B, dim]
    final: State = None  # a recurrent encoder's last state of every layer, for a decoder that starts from it
    layers: tuple[Tensor, ...] = ()  # every layer's states
    views: tuple[Tensor, ...] = ()  # what each layer of the decoder reads, where that is not `states`
    grid: tuple[int, int] | None = None  # rows and columns, where the source is an image


class Encoder(Protocol):
    """Reads a source. Built knowing `input_dim`, the width of what it reads."""

    dim: int  # of the states

    @property
    def final_dims(self) -> Sequence[Sequence[int]]:
        """Widths of the parts of `Encoded.final`, layer by layer; empty: it has none."""
        ...

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        """[B, S, input_dim], and [B] on the device (None: every row is full)."""
        ...


class Decoder(Protocol):
    """Writes a target. Built knowing `input_dim`, `memory_dim` and `final_dims`: see `models/decoders`."""

    dim: int  # of the states from which the next tokens are predicted

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        """The state before the first step; `width` rows a sentence, memory for `room` steps."""
        ...

    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]; one with `across` norms takes [R] lengths too."""
        ...
