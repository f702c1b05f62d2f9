"""From the states of a sequence to one vector: [B, S, dim] -> [B, dim]. Padded places never count.

A summary is told `input_dim`, the width of what enters the encoder, `dim`, that of its states, and `ways`: in how many
directions the encoder walks; 0: it does not walk, every place sees every other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.parts.probe import Probed
from seqloom.parts.visibility import keep, last, mean


class Summary(nn.Module):
    """The slot: may put something of its own into the sequence (`enter`), then sums up what the encoder made of it."""

    def __init__(self, input_dim: int, dim: int, ways: int) -> None:
        super().__init__()

    def enter(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """[B, S, input_dim] and the lengths, as the encoder shall see them."""
        return x, lengths

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        """[B, S, dim] -> [B, dim]; the lengths are those that `enter` gave."""
        raise NotImplementedError


class Last(Summary):
    """The state at the last real place (Elman 1990). Of two directions the one that walks back has read one token
    there: `both` takes each where it has read all."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return last(states, lengths)


class Both(Summary):
    """The last states of both directions: the first half of the state at the end, the second half at the beginning
    (Schuster & Paliwal 1997; Graves & Schmidhuber 2005). Needs a two-way RNN, or an encoder that does not walk."""

    def __init__(self, input_dim: int, dim: int, ways: int) -> None:
        super().__init__(input_dim, dim, ways)
        if ways == 1:
            raise SeqloomError(
                "summary 'both' reads two directions, the encoder has one; choose 'last', or directions=2"
            )

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return _ends(states, lengths)


class Mean(Summary):
    """The mean over the real places (Kalchbrenner & Blunsom 2013)."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        return mean(states, lengths)


class Max(Summary):
    """The largest value of every feature over the real places (Collobert et al. 2011, section 3.3.2)."""

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is not None:
            states = states.masked_fill(~keep(lengths, states.size(1))[:, :, None], float("-inf"))
        return states.amax(1)


class ClassToken(Summary):
    """A learned token put before the sequence, and the state there (Devlin et al. 2019, section 3).

    In a recurrent encoder the state at the first place knows of nothing behind it. There the token stands at both ends:
    each direction is read at the one it comes to last.
    """

    def __init__(self, input_dim: int, dim: int, ways: int) -> None:
        super().__init__(input_dim, dim, ways)
        self.token = nn.Parameter(torch.randn(input_dim) * input_dim**-0.5)
        self.ways = ways

    def enter(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        token = self.token.expand(x.size(0), 1, -1)
        if not self.ways:
            return torch.cat([token, x], 1), None if lengths is None else lengths + 1
        x = torch.cat([token, x, token], 1)
        if lengths is None:
            return x, None
        end = torch.arange(x.size(1), device=x.device) == lengths[:, None] + 1
        return torch.where(end[:, :, None], token, x), lengths + 2

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        if not self.ways:
            return states[:, 0]
        return last(states, lengths) if self.ways == 1 else _ends(states, lengths)


class AttentionPool(Summary, Probed):
    """Σ α_t h_t, α = softmax(uᵀ tanh(W h_t + b)) with a learned query u (Yang et al. 2016, equations 5 to 7).

    Reports its weights, [B, 1, S].
    """

    def __init__(self, input_dim: int, dim: int, ways: int) -> None:
        super().__init__(input_dim, dim, ways)
        self.project = nn.Linear(dim, dim)
        self.query = nn.Parameter(torch.randn(dim) * dim**-0.5)

    def forward(self, states: Tensor, lengths: Tensor | None) -> Tensor:
        scores = self.project(states).tanh() @ self.query
        if lengths is not None:
            scores = scores.masked_fill(~keep(lengths, states.size(1)), torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)[:, None]
        if self.probe:
            self.probe(weights.detach())
        if lengths is not None:  # nothing times what stands in a padded place must be nothing, whatever stands there
            states = states.masked_fill(~keep(lengths, states.size(1))[:, :, None], 0.0)
        return (weights.to(states.dtype) @ states)[:, 0]


SUMMARIES = {
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
