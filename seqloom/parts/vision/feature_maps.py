"""What reads pictures is made of: maps of features, [B, channels, height, width] -> the same of other sizes.

What is called convolution here is cross-correlation, as everywhere since LeCun et al. 1998: kernels are not turned.
Each output channel has a kernel of its own for every input channel, and adds up what they find.
"""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn import functional as F

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.layers.norm import NORMS, LayerNorm
from seqloom.parts.visibility import Visibility


class ChannelNorm(nn.Module):
    """Any norm of vectors, over the channels of every place of a map."""

    def __init__(self, dim: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = build(NORMS, norm_kind, dim=dim)

    @property
    def moves(self) -> bool:
        """Whether it has a β of its own, so that what stands before it needs no bias."""
        return getattr(self.norm, "bias", None) is not None

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


class Filter(nn.Module):
    """Kernels of `size` × `size`, `stride` places apart, with zeros around the map so that at stride 1 it keeps its
    size; then a norm (Ioffe & Szegedy 2015, section 3.2)."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = ChannelNorm(outputs, norm_kind)
        # A kernel of 1 × 1 looks at every `stride`-th place alone, so those are taken out first. Left to torch 2.13,
        # the way back writes beyond its memory where channels lie last and the processor has AVX2 and no more.
        self.skips = stride if size == 1 else 1
        self.weigh = kernels(inputs, outputs, size, stride // self.skips, bias=not self.norm.moves)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.weigh(x[..., :: self.skips, :: self.skips]))


class Basic(nn.Module):
    """Two layers of 3 × 3 and the way around them (He et al. 2016, figure 5, left, https://arxiv.org/abs/1512.03385).

    Where the size changes, the way around is one kernel of 1 × 1 (their option B). Without `adds` there is none: their
    plain network.
    """

    wider = 1

    def __init__(self, inputs: int, dim: int, stride: int, norm_kind: Choice, adds: bool) -> None:
        super().__init__()
        self.filters = nn.ModuleList(self.layers(inputs, dim, stride, norm_kind))
        changes = adds and (stride > 1 or inputs != dim * self.wider)
        self.around = Filter(inputs, dim * self.wider, 1, stride, norm_kind) if changes else nn.Identity()
        self.adds = adds

    def layers(self, inputs: int, dim: int, stride: int, norm_kind: Choice) -> list[Filter]:
        return [Filter(inputs, dim, 3, stride, norm_kind), Filter(dim, dim, 3, 1, norm_kind)]

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number, layer in enumerate(self.filters):
            y = layer(F.relu(y) if number else y)
        return F.relu(y + self.around(x) if self.adds else y)


class Bottleneck(Basic):
    """1 × 1 down to `dim` channels, 3 × 3, and 1 × 1 up to four times as many (He et al. 2016, figure 5, right). The
    stride stands in the 3 × 3 (Goyal et al. 2017, section 5.1)."""

    wider = 4

    def layers(self, inputs: int, dim: int, stride: int, norm_kind: Choice) -> list[Filter]:
        down, up = Filter(inputs, dim, 1, 1, norm_kind), Filter(dim, dim * self.wider, 1, 1, norm_kind)
        return [down, Filter(dim, dim, 3, stride, norm_kind), up]


class Late(nn.Module):
    """Norm, max(0, x), kernels: the order of a dense layer (Huang et al. 2017, section 3)."""

    def __init__(self, inputs: int, outputs: int, size: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = ChannelNorm(inputs, norm_kind)
        self.weigh = kernels(inputs, outputs, size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.weigh(F.relu(self.norm(x)))


class Dense(nn.Module):
    """Layers each of which sees all before it side by side and adds `growth` channels: 1 × 1 down to four times as
    many, then 3 × 3 (Huang et al. 2017, DenseNet-B, https://arxiv.org/abs/1608.06993)."""

    def __init__(self, inputs: int, layers: int, growth: int, norm_kind: Choice) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(Late(inputs + n * growth, 4 * growth, 1, norm_kind), Late(4 * growth, growth, 3, norm_kind))
            for n in range(layers)
        )
        self.dim = inputs + layers * growth

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = cat([x, layer(x)], 1)
        return x


class NonLocal(nn.Module):
    """Every place of a map sees every other: x + W softmax(θ(x)ᵀ φ(x)) g(x) (Wang et al. 2018, section 3,
    https://arxiv.org/abs/1711.07971), scaled and with a norm before. W begins at zero, so that the block begins as no
    block at all (their section 3.3). [B, places, dim] -> the same."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm, self.mix = LayerNorm(dim), MultiHeadAttention(dim, heads)
        nn.init.zeros_(self.mix.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm(x), Visibility())[0]


POOLS = ("max", "mean")


def pooled(x: Tensor, how: str) -> Tensor:
    """The largest value or the mean of every 2 × 2 places; an odd row or column is left out."""
    height, width = x.shape[-2:]
    if min(height, width) < 2:
        raise SeqloomError(f"a map of {height} × {width} cannot be halved; choose fewer layers, or larger pictures")
    return F.max_pool2d(x, 2) if how == "max" else F.avg_pool2d(x, 2)


def kernels(inputs: int, outputs: int, size: int, stride: int, bias: bool) -> nn.Conv2d:
    """[outputs, inputs, size, size], drawn for what max(0, x) lets through (He et al. 2015, section 2.2)."""
    weigh = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)
    nn.init.kaiming_normal_(weigh.weight, mode="fan_out", nonlinearity="relu")
    if weigh.bias is not None:
        nn.init.zeros_(weigh.bias)
    return weigh
