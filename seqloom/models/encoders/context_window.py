"""The window encoder: each position sees its neighbors and no more."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.errors import SeqloomError
from seqloom.models.protocols import Encoded
from seqloom.parts.layers.dropout import dropout
from seqloom.parts.visibility import keep, mean


class WindowEncoder(nn.Module):
    """Each position sees its neighbors: one hidden layer over `window` concatenated embeddings, with zeros
    beyond the ends (Collobert et al. 2011, section 3.3.1). The summary is the mean over real positions."""

    def __init__(self, input_dim: int, dim: int = 256, window: int = 5, dropout: float = 0.0) -> None:
        super().__init__()
        if window % 2 == 0:
            raise SeqloomError(f"window is odd, as many positions before as after, here {window}")
        self.hidden = nn.Conv1d(input_dim, dim, window, padding=window // 2)
        self.dim, self.dropout, self.field = dim, dropout, window
        self.final_dims: tuple[tuple[int, ...], ...] = ()
        self.layer_dims = (dim,)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Encoded:
        if lengths is not None:
            x = x.masked_fill(~keep(lengths, x.size(1))[:, :, None], 0.0)
        states = dropout(self.hidden(x.mT).mT.tanh(), self.dropout, self.training)
        return Encoded(states=states, lengths=lengths, summary=mean(states, lengths), layers=(states,))
