"""The recurrent encoder: RNN, GRU or LSTM, in one direction or two."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.models.protocols import Encoded
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility


class RecurrentEncoder(nn.Module):
    """An RNN, GRU or LSTM over the source (Sutskever et al. 2014), in one direction or two (Bahdanau et al. 2015,
    section 3.2).

    The summary is the top layer's last state; with two directions, the last of each. `weight_drop`: see Recurrent.
    """

    def __init__(
        self,
        input_dim: int,
        cell: Annotated[Choice, CELLS] = "lstm",
        dim: int | list[int] = 256,
        layers: int = 1,
        directions: int = 2,
        dropout: float = 0.0,
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.recurrent = Recurrent(input_dim, dim, cell, layers, directions, dropout, weight_drop)
        self.dim, self.directions = self.recurrent.out_dim, directions
        self.final_dims = self.recurrent.state_dims
        self.layer_dims = tuple(dims[0] for dims in self.final_dims)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        outputs, final = self.recurrent.run(x, Visibility(lengths=lengths))
        summary = final[-1][0]
        return Encoded(states=outputs[-1], lengths=lengths, summary=summary, final=final, layers=tuple(outputs))
