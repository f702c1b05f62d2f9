"""What eyes are made of beside loops worked by hand: cross-correlation, strides, padding, pooling."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.vision.feature_maps import (
    BasicBlock,
    Bottleneck,
    ChannelNorm,
    ConvNorm,
    DenseBlock,
    NonLocal,
    convolution,
    pool,
)
from tests.laws import close, drawn, shake


def correlated(x, weight, bias, stride, padding):
    """The plain twin: out[o, r, c] = bias[o] + Σ_(i, a, b) weight[o, i, a, b] x[i, r·stride + a, c·stride + b]."""
    x = F.pad(x, (padding,) * 4)
    size = weight.size(-1)
    rows, columns = ((n - size) // stride + 1 for n in x.shape[-2:])
    out = x.new_zeros(x.size(0), weight.size(0), rows, columns)
    for r in range(rows):
        for c in range(columns):
            piece = x[:, :, r * stride : r * stride + size, c * stride : c * stride + size]
            for o in range(weight.size(0)):
                out[:, o, r, c] = bias[o] + sum(
                    (piece[:, i, a, b] * weight[o, i, a, b])
                    for i in range(weight.size(1))
                    for a in range(size)
                    for b in range(size)
                )
    return out


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1), (7, 2)])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 2), (3, 2)])
def test_cross_correlation(inputs, outputs, size, stride):
    """By hand and as torch has it; a convolution proper is the same with its kernels turned round."""
    part, x = shake(convolution(inputs, outputs, size, stride, True).double(), 1), drawn(2, inputs, 9, 8)
    assert part.weight.shape == (outputs, inputs, size, size)
    found = part(x)
    close(found, correlated(x, part.weight, part.bias, stride, size // 2))
    close(found, F.conv2d(x, part.weight, part.bias, stride, size // 2))
    turned = part.weight.flip(-1, -2)
    if size > 1:
        assert not torch.allclose(F.conv2d(x, turned, part.bias, stride, size // 2), found)
    # The transposed operation spreads each input over its kernel: a convolution in the sense of mathematics.
    proper = F.conv_transpose2d(x, turned.transpose(0, 1), part.bias, 1, size - 1 - size // 2)
    close(proper[:, :, ::stride, ::stride], found)


def test_kernels_begin_as_wide_as_what_goes_out_wants():
    """He et al. 2015, section 2.2, the backward case: variance 2 / (size² · outputs)."""
    torch.manual_seed(0)
    assert convolution(8, 128, 3, 1, True).weight.var().item() == pytest.approx(2 / (9 * 128), rel=0.1)


def test_a_kernel_by_hand():
    """(1 2; 3 4) with an edge detector (−1 1) of one row: differences of neighbours."""
    x, weight = torch.tensor([[[[1.0, 2.0], [3.0, 5.0]]]]), torch.tensor([[[[-1.0, 1.0]]]])
    assert F.conv2d(x, weight).tolist() == [[[[1.0], [2.0]]]]


@pytest.mark.parametrize("how", ["max", "mean"])
def test_pooling_by_hand(how):
    x = drawn(2, 3, 5, 6)
    found = pool(x, how)
    assert found.shape == (2, 3, 2, 3)
    for r in range(2):
        for c in range(3):
            piece = x[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].flatten(2)
            close(found[:, :, r, c], piece.amax(-1) if how == "max" else piece.mean(-1))


def test_what_cannot_be_halved_is_said():
    with pytest.raises(SeqloomError, match="a map of 1 × 4 cannot be halved; choose fewer layers, or larger images"):
        pool(drawn(1, 1, 1, 4), "max")


@pytest.mark.parametrize("training", [True, False])
def test_a_norm_over_channels_is_torchs(training):
    ours, theirs = ChannelNorm(3, "batch").double(), torch.nn.BatchNorm2d(3).double()
    for seed in range(2):
        x = drawn(2, 3, 4, 5, seed=seed) * 2 + 1
        close(ours.train(training)(x), theirs.train(training)(x))
    close([ours.norm.mean, ours.norm.variance], [theirs.running_mean, theirs.running_var])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_residual_block_by_hand(block, stride):
    part, x = shake(block(8, 2, stride, "batch", True).double(), 1), drawn(2, 8, 6, 6)
    y = x
    for number, layer in enumerate(part.filters):
        y = layer.norm(layer.weigh(y.relu() if number else y))
    wide = 2 * block.expansion
    assert y.shape == (2, wide, 6 // stride, 6 // stride)
    around = x if stride == 1 and wide == 8 else part.around(x)
    close(part(x), (y + around).relu())
    plain = block(8, 2, stride, "batch", False).double().eval()
    plain.filters.load_state_dict(part.filters.state_dict())
    close(plain(x), y.relu())


def test_the_stride_of_a_bottleneck_stands_in_the_middle():
    assert [part.weigh.stride for part in Bottleneck(8, 2, 2, "batch", True).filters] == [(1, 1), (2, 2), (1, 1)]


def test_a_bias_only_where_the_norm_has_none():
    assert ConvNorm(2, 3, 3, 1, "batch").weigh.bias is None
    assert ConvNorm(2, 3, 3, 1, "rms").weigh.bias is not None
    assert ConvNorm(2, 3, 3, 1, "none").weigh.bias is not None


def test_a_dense_layer_keeps_all_before_it():
    part, x = shake(DenseBlock(3, 2, 4, "batch").double(), 1), drawn(2, 3, 5, 5)
    y = part(x)
    assert y.shape == (2, 3 + 2 * 4, 5, 5)
    close(y[:, :3], x)
    first = part.layers[0](x)
    close(y[:, 3:7], first)
    close(y[:, 7:], part.layers[1](torch.cat([x, first], 1)))


def test_every_place_sees_every_other():
    """By hand; and at the beginning the block is none at all."""
    part, x = NonLocal(4, 1).double(), drawn(2, 6, 4)
    close(part(x), x)
    shake(part, 1)
    q, k, v = part.mix.project(part.norm(x)).chunk(3, -1)
    weights = (q @ k.mT / 2).softmax(-1)
    close(part(x), x + part.mix.out(weights @ v))
