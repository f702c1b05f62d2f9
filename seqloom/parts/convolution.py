"""Convolution along time: every place sees a few neighbours and no farther."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, cat, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.position import Turns
from seqloom.parts.see import See, keep


class Trail(NamedTuple):
    """The last places that a causal convolution still needs, and how many steps were taken."""

    before: Tensor | None = None  # [R, reach, dim]; None: only zeros
    used: int = 0


class Convolution(nn.Module):
    """y_t = b + Σ_i W_i x_(t + i·dilation) over `width` places (Waibel et al. 1989; `dilation` apart: van den Oord et
    al. 2016, section 2.1, https://arxiv.org/abs/1609.03499). As a mixer it can stand where self-attention does.

    Where nothing that comes after may be seen, the places are t and those before it; else as many before t as after,
    and of an even width one more before. Beyond the ends stand zeros. `gate`: (X∗W + b) ⊗ σ(X∗V + c), twice the
    weights (Dauphin et al. 2017, equation 1, https://arxiv.org/abs/1612.08083).
    """

    causal = True  # it can be: the `See` it is given decides
    bounded = True

    def __init__(self, dim: int, width: int = 3, dilation: int = 1, gate: bool = False) -> None:
        super().__init__()
        for name, value in (("width", width), ("dilation", dilation)):
            if value < 1:
                raise SeqloomError(f"{name} of a convolution is at least 1, here {value}")
        self.weigh = nn.Conv1d(dim, 2 * dim if gate else dim, width, dilation=dilation)
        nn.init.xavier_uniform_(self.weigh.weight)
        nn.init.zeros_(self.weigh.bias)  # pyright: ignore[reportArgumentType]
        self.reach, self.gate = (width - 1) * dilation, gate

    def begin(self, room: int | None = None) -> Trail:
        return Trail()

    def forward(
        self, x: Tensor, see: See, state: Trail | None = None, position: Turns | None = None
    ) -> tuple[Tensor, Trail | None]:
        """[R, T, dim] -> the same; with a state, x stands after what it holds."""
        y, before = self.over(x, see, None if state is None else state.before)
        return y, None if state is None else Trail(before, state.used + x.size(1))

    def over(self, x: Tensor, see: See, before: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The same with the places `before`, [R, reach, dim], as the state; of what is not causal there are none."""
        if see.causal:
            x = F.pad(x, (0, 0, self.reach, 0)) if before is None else cat([before, x], 1)
            before = x[:, x.size(1) - self.reach :]
        else:
            if see.lengths is not None:
                x = x.masked_fill(~keep(see.lengths, x.size(1))[:, :, None], 0.0)
            after = self.reach // 2
            x = F.pad(x, (0, 0, self.reach - after, after))
        y = self.weigh(x.mT).mT
        return F.glu(y, -1) if self.gate else y, before
