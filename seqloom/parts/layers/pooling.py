"""Pooling: from the states of a sequence to one vector, [B, S, dim] -> [B, dim]. Padded positions never count.

`input_dim` is the width of the encoder's input, `dim` that of its states; `directions`: 1 or 2 of a recurrent encoder,
0 of others, in which every position sees every other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.probe import Probed
from seqloom.parts.visibility import keep, last, mean


class Pooling(nn.Module):
    """The base class. `prepare` may add tokens to the encoder's input; `forward` pools its states."""

    def __init__(self, input_dim: int, dim: int, directions: int) -> None:
        super().__init__()

    def prepare(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The encoder's input [B, S, input_dim] and its lengths."""
        return x, lengths

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """[B, S, dim] -> [B, dim]; the lengths are those from `prepare`."""
        raise NotImplementedError


class Last(Pooling):
    """The state at the last real position (Elman 1990). A backward direction has read only one token there: `both`
    takes each direction where it has read all."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return last(states, lengths)


class Both(Pooling):
    """The last states of both directions: the first half of the state at the end, the second half at the beginning
    (Schuster & Paliwal 1997; Graves & Schmidhuber 2005). Not for an RNN of one direction."""

    def __init__(self, input_dim: int, dim: int, directions: int) -> None:
        super().__init__(input_dim, dim, directions)
        if directions == 1:
            raise SeqloomError(
                "pooling 'both' reads two directions, the encoder has one; choose 'last', or directions=2"
            )

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return _ends(states, lengths)


class Mean(Pooling):
    """The mean over the real positions (Kalchbrenner & Blunsom 2013)."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return mean(states, lengths)


class Max(Pooling):
    """The maximum of every feature over the real positions (Collobert et al. 2011, section 3.3.2)."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is not None:
            states = states.masked_fill(~keep(lengths, states.size(1))[:, :, None], float("-inf"))
        return states.amax(1)


class ClassToken(Pooling):
    """The state at a learned token before the sequence (Devlin et al. 2019, section 3).

    A recurrent encoder gets the token at both ends, and each direction is read at the one that it reaches last.
    """

    def __init__(self, input_dim: int, dim: int, directions: int) -> None:
        super().__init__(input_dim, dim, directions)
        self.token = nn.Parameter(torch.randn(input_dim) * input_dim**-0.5)
        self.directions = directions

    def prepare(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        token = self.token.expand(x.size(0), 1, -1)
        if not self.directions:
            return torch.cat([token, x], 1), None if lengths is None else lengths + 1
        x = torch.cat([token, x, token], 1)
        if lengths is None:
            return x, None
        end = torch.arange(x.size(1), device=x.device) == lengths[:, None] + 1
        return torch.where(end[:, :, None], token, x), lengths + 2

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        if not self.directions:
            return states[:, 0]
        return last(states, lengths) if self.directions == 1 else _ends(states, lengths)


class AttentionPool(Pooling, Probed):
    """Σ α_t h_t, α = softmax(uᵀ tanh(W h_t + b)) with a learned query u (Yang et al. 2016, equations 5 to 7).

    Reports its weights, [B, 1, S].
    """

    def __init__(self, input_dim: int, dim: int, directions: int) -> None:
        super().__init__(input_dim, dim, directions)
        self.project = nn.Linear(dim, dim)
        self.query = nn.Parameter(torch.randn(dim) * dim**-0.5)

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        scores = self.project(states).tanh() @ self.query
        if lengths is not None:
            scores = scores.masked_fill(~keep(lengths, states.size(1)), torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)[:, None]
        if self.probe:
            self.probe(weights.detach())
        if lengths is not None:  # padded positions may hold NaN, and 0 · NaN is not 0
            states = states.masked_fill(~keep(lengths, states.size(1))[:, :, None], 0.0)
        return (weights.to(states.dtype) @ states)[:, 0]


POOLINGS = {
    "last": Last,
    "both": Both,
    "mean": Mean,
    "max": Max,
    "class": ClassToken,
    "attention": AttentionPool,
}


def _ends(states: Tensor, lengths: Tensor | None) -> Tensor:
    half = states.size(-1) // 2
    return torch.cat([last(states, lengths)[:, :half], states[:, 0, half:]], -1)
