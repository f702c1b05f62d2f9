"""The recurrent decoder with a fixed context."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, cat, nn

from seqloom.build import Choice
from seqloom.errors import known
from seqloom.models.decoders.bridge import Bridge, Dims, repeat_rows
from seqloom.models.protocols import Encoded
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import Visibility, mean


class RecurrentDecoder(nn.Module):
    """A recurrent decoder with a fixed context: its only input from the source is one vector.

    `context` says how the vector is made (see Bridge); `context_to` says where it goes: as the `initial` state
    (Sutskever et al. 2014), as `input` at every step, or `both` (Cho et al. 2014, section 2.2). `weight_drop`: see
    Recurrent.
    """

    def __init__(
        self,
        input_dim: int,
        memory_dim: int,
        final_dims: Dims,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 512,
        layers: int = 1,
        dropout: float = 0.0,
        context: str = "last",
        context_to: str = "both",
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.feeds = known(context_to, ("initial", "input", "both"), "context_to") != "initial"
        self.recurrent = Recurrent(input_dim + memory_dim * self.feeds, dim, cell, layers, 1, dropout, weight_drop)
        self.context = known(context, ("last", "transform", "pool"), "context")
        start = "zero" if context_to == "input" else context
        self.bridge = Bridge(start, memory_dim, final_dims, self.recurrent.state_dims)
        self.transform = nn.Linear(memory_dim, memory_dim) if self.feeds and context == "transform" else None
        self.dim = self.recurrent.out_dim

    def begin(self, encoded: Encoded, width: int = 1, room: int | None = None) -> Decoding:
        context = mean(encoded.states, encoded.lengths) if self.context == "pool" else encoded.summary
        if self.transform is not None:
            context = self.transform(context).tanh()
        return Decoding(context, repeat_rows(self.bridge(encoded), width))

    def forward(self, x: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """[R, T, input_dim] -> [R, T, dim]"""
        if self.feeds:
            context = repeat_rows(state.context, x.size(0) // state.context.size(0))
            x = cat([x, context[:, None].expand(-1, x.size(1), -1)], -1)
        states, rows = self.recurrent(x, Visibility(causal=True), state.rows)
        return states, Decoding(state.context, rows)
