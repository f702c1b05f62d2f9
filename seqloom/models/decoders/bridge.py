"""The bridge from an encoder to the first state of a recurrent decoder."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from seqloom.errors import known
from seqloom.models.protocols import Encoded
from seqloom.parts.recurrent.layers import StackState
from seqloom.parts.visibility import mean

Dims = tuple[tuple[int, ...], ...]


class Bridge(nn.Module):
    """From the encoder's output to a decoder's first state, for every layer and every tensor of its state.

    `last`: the encoder's last state, layer by layer, as it is where the widths agree, else through a linear map.
    `transform`: tanh(W s + b) of it (Bahdanau et al. 2015, appendix A.2.2); an LSTM's c goes through W s + b.
    `pool`: the same of the mean over all states. `zero`: a state of zeros.
    """

    def __init__(self, how: str, memory_dim: int, final_dims: Dims, state_dims: Dims) -> None:
        super().__init__()
        self.how = known(how, ("last", "transform", "pool", "zero"), "initial_state")
        self.state_dims = state_dims
        self.maps = nn.ModuleDict()
        self.from_encoder: set[tuple[int, int]] = set()  # (layer, part) taken from the encoder's state
        for layer, dims in enumerate(state_dims):
            for part, dim in enumerate(dims):
                at = _from_the_top(layer, len(state_dims), len(final_dims))
                available = how in ("last", "transform") and at >= 0 and part < len(final_dims[at])
                source = final_dims[at][part] if available else memory_dim
                if available:
                    self.from_encoder.add((layer, part))
                if how != "zero" and not (how == "last" and available and source == dim):
                    self.maps[f"{layer}-{part}"] = nn.Linear(source, dim)

    def forward(self, encoded: Encoded) -> StackState:
        vector = mean(encoded.states, encoded.lengths) if self.how == "pool" else encoded.summary
        return tuple(
            tuple(self._part(encoded, vector, layer, part) for part in range(len(dims)))
            for layer, dims in enumerate(self.state_dims)
        )

    def _part(self, encoded: Encoded, vector: Tensor, layer: int, part: int) -> Tensor:
        if self.how == "zero":
            return vector.new_zeros(vector.size(0), self.state_dims[layer][part])
        if (layer, part) in self.from_encoder:
            vector = encoded.final[_from_the_top(layer, len(self.state_dims), len(encoded.final))][part]
        key = f"{layer}-{part}"
        if key not in self.maps:
            return vector
        mapped = self.maps[key](vector)
        return mapped if self.how == "last" or part == 1 else mapped.tanh()


def _from_the_top(layer: int, layers: int, others: int) -> int:
    """The encoder's layer at the height of the decoder's `layer`, counted from the top; negative if none."""
    return others - layers + layer


def repeat_rows(state: Any, width: int) -> Any:
    """Repeat every row `width` times, in nested tuples too: each hypothesis of a sentence gets the same first state."""
    if width == 1:
        return state
    if isinstance(state, Tensor):
        return state[:, None].expand(-1, width, *state.shape[1:]).flatten(0, 1)  # exporters support this better
    return tuple(repeat_rows(part, width) for part in state)
