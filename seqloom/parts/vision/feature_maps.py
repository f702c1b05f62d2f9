"""Layers over feature maps, [B, channels, height, width] -> the same with other sizes.

As usual since LeCun et al. 1998, convolution here is cross-correlation: kernels are not flipped. Each output channel
has a kernel for every input channel and sums over them.
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
    """Any norm of vectors, over the channels at every position of a map."""

    def __init__(self, dim: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = build(NORMS, norm_kind, dim=dim)

    @property
    def has_bias(self) -> bool:
        """Whether it has a β of its own, so that the layer before needs no bias."""
        return getattr(self.norm, "bias", None) is not None

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


class ConvNorm(nn.Module):
    """A convolution of `size` × `size`, zero-padded so that at stride 1 the map keeps its size; then a norm (Ioffe &
    Szegedy 2015, section 3.2)."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = ChannelNorm(outputs, norm_kind)
        # A 1 × 1 kernel reads only every `stride`-th position, so these are sliced first. With torch 2.13's own stride
        # the backward pass writes out of bounds in channels-last memory on processors with AVX2 only.
        self.subsample = stride if size == 1 else 1
        self.weigh = convolution(inputs, outputs, size, stride // self.subsample, bias=not self.norm.has_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.weigh(x[..., :: self.subsample, :: self.subsample]))


class BasicBlock(nn.Module):
    """Two layers of 3 × 3 and a residual connection (He et al. 2016, figure 5, left, https://arxiv.org/abs/1512.03385).

    Where the size changes, the connection is a 1 × 1 convolution (their option B). Without `residual` there is none:
    their plain network.
    """

    expansion = 1

    def __init__(self, inputs: int, dim: int, stride: int, norm_kind: Choice, residual: bool) -> None:
        super().__init__()
        self.filters = nn.ModuleList(self.layers(inputs, dim, stride, norm_kind))
        changes = residual and (stride > 1 or inputs != dim * self.expansion)
        self.around = ConvNorm(inputs, dim * self.expansion, 1, stride, norm_kind) if changes else nn.Identity()
        self.residual = residual

    def layers(self, inputs: int, dim: int, stride: int, norm_kind: Choice) -> list[ConvNorm]:
        return [ConvNorm(inputs, dim, 3, stride, norm_kind), ConvNorm(dim, dim, 3, 1, norm_kind)]

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number, layer in enumerate(self.filters):
            y = layer(F.relu(y) if number else y)
        return F.relu(y + self.around(x) if self.residual else y)


class Bottleneck(BasicBlock):
    """1 × 1 down to `dim` channels, 3 × 3, and 1 × 1 up to four times as many (He et al. 2016, figure 5, right). The
    stride is in the 3 × 3 (Goyal et al. 2017, section 5.1)."""

    expansion = 4

    def layers(self, inputs: int, dim: int, stride: int, norm_kind: Choice) -> list[ConvNorm]:
        down, up = ConvNorm(inputs, dim, 1, 1, norm_kind), ConvNorm(dim, dim * self.expansion, 1, 1, norm_kind)
        return [down, ConvNorm(dim, dim, 3, stride, norm_kind), up]


class NormReluConv(nn.Module):
    """Norm, ReLU, convolution: the order of a dense layer (Huang et al. 2017, section 3)."""

    def __init__(self, inputs: int, outputs: int, size: int, norm_kind: Choice) -> None:
        super().__init__()
        self.norm = ChannelNorm(inputs, norm_kind)
        self.weigh = convolution(inputs, outputs, size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.weigh(F.relu(self.norm(x)))


class DenseBlock(nn.Module):
    """Layers that read the concatenated outputs of all before them and add `growth` channels: 1 × 1 to 4 · growth
    channels, then 3 × 3 (Huang et al. 2017, DenseNet-B, https://arxiv.org/abs/1608.06993)."""

    def __init__(self, inputs: int, layers: int, growth: int, norm_kind: Choice) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                NormReluConv(inputs + n * growth, 4 * growth, 1, norm_kind),
                NormReluConv(4 * growth, growth, 3, norm_kind),
            )
            for n in range(layers)
        )
        self.dim = inputs + layers * growth

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = cat([x, layer(x)], 1)
        return x


class NonLocal(nn.Module):
    """Every position of a map sees every other: x + W softmax(θ(x)ᵀ φ(x)) g(x) (Wang et al. 2018, section 3,
    https://arxiv.org/abs/1711.07971), scaled and with a norm before. W starts at zero, so the block starts as the
    identity (their section 3.3). [B, positions, dim] -> the same."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm, self.mix = LayerNorm(dim), MultiHeadAttention(dim, heads)
        nn.init.zeros_(self.mix.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm(x), Visibility())[0]


POOLS = ("max", "mean")


def pool(x: Tensor, how: str) -> Tensor:
    """The maximum or the mean of every 2 × 2 positions; an odd row or column is left out."""
    height, width = x.shape[-2:]
    if min(height, width) < 2:
        raise SeqloomError(f"a map of {height} × {width} cannot be halved; choose fewer layers, or larger images")
    return F.max_pool2d(x, 2) if how == "max" else F.avg_pool2d(x, 2)


def convolution(inputs: int, outputs: int, size: int, stride: int, bias: bool) -> nn.Conv2d:
    """[outputs, inputs, size, size], initialized for ReLU (He et al. 2015, section 2.2)."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
