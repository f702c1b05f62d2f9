"""Convolution along time: every position sees a few neighbors."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, cat, nn
from torch.nn import functional as F

from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.positions.position import AttentionPosition
from seqloom.parts.state import MixerState
from seqloom.parts.visibility import Visibility, keep


class Convolution(nn.Module):
    """y_t = b + Σ_i W_i x_(t + i·dilation) over `width` positions (Waibel et al. 1989; with `dilation`: van den Oord et
    al. 2016, section 2.1, https://arxiv.org/abs/1609.03499).

    Causal, the positions are t and those before it; else as many before t as after, and with an even width one more
    before. Padded with zeros at both ends. `gate`: (X∗W + b) ⊗ σ(X∗V + c), with twice the weights (Dauphin et al. 2017,
    equation 1, https://arxiv.org/abs/1612.08083).
    """

    def __init__(self, dim: int, width: int = 3, dilation: int = 1, gate: bool = False) -> None:
        super().__init__()
        for name, value in (("width", width), ("dilation", dilation)):
            if value < 1:
                raise SeqloomError(f"{name} of a convolution is at least 1, here {value}")
        self.weigh = nn.Conv1d(dim, 2 * dim if gate else dim, width, dilation=dilation)
        nn.init.xavier_uniform_(self.weigh.weight)
        nn.init.zeros_(self.weigh.bias)  # pyright: ignore[reportArgumentType]
        self.reach, self.gate = (width - 1) * dilation, gate

    def forward(self, x: Tensor, visible: Visibility, before: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """[R, T, dim] -> the same, and if causal the last inputs that later steps need, [R, reach, dim]: pass them as
        the next call's `before`. None: zeros."""
        if visible.causal:
            x = F.pad(x, (0, 0, self.reach, 0)) if before is None else cat([before, x], 1)
            before = x[:, x.size(1) - self.reach :].contiguous()  # so that the rest of x can be freed
        else:
            if visible.lengths is not None:
                x = x.masked_fill(~keep(visible.lengths, x.size(1))[:, :, None], 0.0)
            after = self.reach // 2
            x = F.pad(x, (0, 0, self.reach - after, after))
        y = self.weigh(x.mT).mT
        return F.glu(y, -1) if self.gate else y, before


class ConvolutionMixer(Convolution):
    """A convolution in place of self-attention (Gehring et al. 2017, section 3.2; Wu et al. 2019,
    https://arxiv.org/abs/1901.10430). It needs no position encodings.

    The state is the last (width − 1) · dilation inputs. `heads` and `score` are ignored.
    """

    causal = True
    bounded = True

    def __init__(
        self,
        dim: int,
        heads: int,
        score: Annotated[Choice, SCORES],
        width: int = 3,
        dilation: int = 1,
        gate: bool = False,
    ) -> None:
        super().__init__(dim, width, dilation, gate)

    def begin(self, room: int | None = None) -> MixerState:
        return MixerState()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, visible: Visibility, state: MixerState | None = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, MixerState | None]:
        y, before = super().forward(x, visible, *(state.parts if state is not None else ()))
        if state is None or before is None:
            return y, state
        return y, MixerState(state.used + x.size(1), (before,))
