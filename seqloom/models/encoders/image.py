"""Image encoders: [B, channels, height, width] -> Encoded with its `grid`. IMAGE_ENCODERS holds them by name.

The states are the positions of a feature map, row by row, [B, rows · columns, dim]; all are real. Decoders and heads
read them as they read the words of a sentence: "show, attend and tell" (Xu et al. 2015,
https://arxiv.org/abs/1502.03044).
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError, known
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.protocols import Encoded
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.mixers.efficient_attention import at_least
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.vision.feature_maps import (
    POOLS,
    BasicBlock,
    Bottleneck,
    ChannelNorm,
    ConvNorm,
    DenseBlock,
    NonLocal,
    NormReluConv,
    convolution,
    pool,
)

Dims = tuple[tuple[int, ...], ...]


class ImageEncoder(nn.Module):
    """The base class. `feature_map` gives [B, dim, rows, columns], of which every position is a state; or `read` is
    overridden. `channels`: 1 for gray images, 3 for color."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.channels, self.dim = channels, dim
        self.final_dims: Dims = ()

    def feature_map(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def read(self, images: Tensor) -> Encoded:
        features = self.feature_map(images)
        states = features.flatten(2).mT
        return Encoded(states=states, lengths=None, summary=states.mean(1), grid=(features.size(2), features.size(3)))

    def forward(self, images: Tensor) -> Encoded:
        """[B, channels, height, width]. The summary is the mean over all positions."""
        if images.dim() != 4 or images.size(1) != self.channels:
            wanted = f"[images, {self.channels}, height, width]"
            raise SeqloomError(f"this image encoder reads {wanted}, here {list(images.shape)}")
        return self.read(images)


def positive(name: str, counts: list[int]) -> list[int]:
    """The list, if it has at least one number and each is at least 1."""
    if not counts or min(counts) < 1:
        raise SeqloomError(f"{name} of an image encoder lists at least one number, each at least 1, here {counts}")
    return counts


class ConvolutionImageEncoder(ImageEncoder):
    """Kernels, an activation and pooling of every 2 × 2 positions, layer by layer (LeCun et al. 1998, section II).

    `dims`: the channels of every layer. `size`: of the kernels. `pool`: `max` or `mean`.
    """

    def __init__(
        self,
        channels: int,
        dims: list[int] = [32, 64],  # noqa: B006 (never written to; a setting is a list in YAML)
        size: int = 5,
        pool: str = "max",
        activation: str = "relu",
    ) -> None:
        inputs = [channels, *positive("dims", dims)[:-1]]
        super().__init__(channels, dims[-1])
        at_least("size", size)
        self.layers = nn.ModuleList(
            convolution(one, other, size, 1, bias=True) for one, other in zip(inputs, dims, strict=True)
        )
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.pool = known(pool, POOLS, "pool")

    def feature_map(self, images: Tensor) -> Tensor:
        for layer in self.layers:
            images = pool(self.activation(layer(images)), self.pool)
        return images


class Stem(nn.Module):
    """The first layer. `large`: 7 × 7 at stride 2, then the maximum of 3 × 3 at stride 2, so an image of 224 rows has
    56 (He et al. 2016, table 1). `small`: 3 × 3, the image keeps its size (their section 4.2)."""

    def __init__(self, channels: int, dim: int, stem: str, norm_kind: Choice) -> None:
        super().__init__()
        self.large = known(stem, ("large", "small"), "stem") == "large"
        self.filter = ConvNorm(channels, dim, *((7, 2) if self.large else (3, 1)), norm_kind)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.filter(x))
        return F.max_pool2d(x, 3, 2, 1) if self.large else x


class ResNet(ImageEncoder):
    """Residual layers in stages (He et al. 2016, table 1, https://arxiv.org/abs/1512.03385).

    `blocks` of each stage; the first has `dim` channels, each next one twice as many on a map of half the size.
    `bottleneck`: blocks of three layers, four times as wide. 2, 2, 2, 2 is ResNet-18; 3, 4, 6, 3 is ResNet-34, and
    ResNet-50 with bottlenecks. `residual="none"`: their plain network. `stem`: see Stem.
    """

    def __init__(
        self,
        channels: int,
        dim: int = 64,
        blocks: list[int] = [2, 2, 2, 2],  # noqa: B006
        bottleneck: bool = False,
        stem: str = "large",
        norm_kind: Annotated[Choice, NORMS] = "batch",
        residual: str = "add",
    ) -> None:
        block, with_residual = (
            Bottleneck if bottleneck else BasicBlock,
            known(residual, ("add", "none"), "residual") == "add",
        )
        super().__init__(channels, dim * 2 ** (len(positive("blocks", blocks)) - 1) * block.expansion)
        self.stem = Stem(channels, dim, stem, norm_kind)
        self.stages, inputs = nn.ModuleList(), dim
        for stage, count in enumerate(blocks):
            width, made = dim * 2**stage, []
            for number in range(count):
                made.append(block(inputs, width, 2 if stage and not number else 1, norm_kind, with_residual))
                inputs = width * block.expansion
            self.stages.append(nn.Sequential(*made))

    def feature_map(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for stage in self.stages:
            x = stage(x)
        return x


class DenseNet(ImageEncoder):
    """Stages of layers that see all before them, with transitions between: 1 × 1 down to a share of the channels, then
    the mean of every 2 × 2 positions (Huang et al. 2017, DenseNet-BC, table 1, https://arxiv.org/abs/1608.06993).

    `blocks`: layers of each stage; 6, 12, 24, 16 is DenseNet-121. `growth`: channels that a layer adds; the stem has
    twice as many. `compression`: the share that a transition leaves. `stem`: see Stem.
    """

    def __init__(
        self,
        channels: int,
        blocks: list[int] = [6, 12, 24, 16],  # noqa: B006
        growth: int = 32,
        compression: float = 0.5,
        stem: str = "large",
        norm_kind: Annotated[Choice, NORMS] = "batch",
    ) -> None:
        if not 0 < compression <= 1:
            raise SeqloomError(f"compression is above 0 and at most 1, here {compression}")
        stages, between, inputs = [], [], 2 * at_least("growth", growth)
        for number, layers in enumerate(positive("blocks", blocks)):
            stages.append(DenseBlock(inputs, layers, growth, norm_kind))
            inputs = stages[-1].dim
            if number < len(blocks) - 1:
                between.append(NormReluConv(inputs, inputs := max(1, int(inputs * compression)), 1, norm_kind))
        super().__init__(channels, inputs)
        self.stem = Stem(channels, 2 * growth, stem, norm_kind)
        self.stages, self.between = nn.ModuleList(stages), nn.ModuleList(between)
        self.norm = ChannelNorm(inputs, norm_kind)

    def feature_map(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for number, stage in enumerate(self.stages):
            x = stage(x if not number else pool(self.between[number - 1](x), "mean"))
        return F.relu(self.norm(x))


class PatchImageEncoder(ImageEncoder):
    """The image is cut into patches of `size` × `size`, each is one token of a Transformer (Dosovitskiy et al. 2021,
    section 3.1, https://arxiv.org/abs/2010.11929). The rest: see TransformerEncoder. There is no class token: the
    summary is the mean."""

    def __init__(
        self,
        channels: int,
        dim: int = 192,
        size: int = 4,
        layers: int = 6,
        heads: int = 3,
        hidden: int = 768,
        position: Annotated[Choice, POSITIONS] = "learned",
        norm: str = "before",
        activation: str = "gelu",
        dropout: float = 0.1,
    ) -> None:
        super().__init__(channels, dim)
        self.size = at_least("size", size)
        self.patch = nn.Linear(channels * size * size, dim)
        self.encoder = TransformerEncoder(
            dim,
            dim,
            layers,
            heads,
            hidden,
            position,
            norm=norm,
            activation=activation,
            dropout=dropout,
            scale_embeddings=False,
        )

    def patches(self, images: Tensor) -> Tensor:
        """[B, channels, height, width] -> [B, rows, columns, channels · size · size]"""
        height, width = images.shape[-2:]
        if height % self.size or width % self.size:
            fitting = ", ".join(str(n) for n in range(1, 33) if height % n == 0 and width % n == 0)
            raise SeqloomError(f"patches of {self.size} do not tile {height} × {width}; choose size from: {fitting}")
        tiles = images.unfold(2, self.size, self.size).unfold(3, self.size, self.size)
        return tiles.permute(0, 2, 3, 1, 4, 5).flatten(3)

    def read(self, images: Tensor) -> Encoded:
        patches = self.patches(images)
        encoded = self.encoder(self.patch(patches.flatten(1, 2)), None)
        grid = (patches.size(1), patches.size(2))
        return Encoded(states=encoded.states, lengths=None, summary=encoded.summary, layers=encoded.layers, grid=grid)


FEATURE_MAP_ENCODERS = {"convolution": ConvolutionImageEncoder, "resnet": ResNet, "densenet": DenseNet}


class GridImageEncoder(nn.Module):
    """Another image encoder, and self-attention over its feature map: every position sees every other (Wang et al.
    2018, https://arxiv.org/abs/1711.07971)."""

    def __init__(
        self,
        channels: int,
        eye: Annotated[Choice, FEATURE_MAP_ENCODERS] = "convolution",
        layers: int = 1,
        heads: int = 1,
    ) -> None:
        super().__init__()
        self.eye = build(FEATURE_MAP_ENCODERS, eye, channels=channels)
        self.dim, self.final_dims = self.eye.dim, self.eye.final_dims
        self.blocks = nn.ModuleList(NonLocal(self.dim, heads) for _ in range(layers))

    def forward(self, images: Tensor) -> Encoded:
        encoded, outputs = self.eye(images), []
        x = encoded.states
        for block in self.blocks:
            outputs.append(x := block(x))
        return Encoded(states=x, lengths=None, summary=x.mean(1), layers=tuple(outputs), grid=encoded.grid)


IMAGE_ENCODERS = {**FEATURE_MAP_ENCODERS, "patches": PatchImageEncoder, "grid": GridImageEncoder}
