"""Convolution along time beside its formula and torch's."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.mixers.convolution import Convolution, ConvolutionMixer
from seqloom.parts.transformer.block import Block
from seqloom.parts.visibility import Visibility, keep
from tests.laws import LENGTHS, close, drawn, shake

SHAPES = [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3)]


def made(**options):
    torch.manual_seed(0)
    return shake(Convolution(4, **options).double(), 1)


def by_hand(part, x, before):
    """y_t = b + Σ_i W_i x_(t − before + i·dilation), zeros beyond the ends."""
    weight, bias, dilation = part.weigh.weight, part.weigh.bias, part.weigh.dilation[0]
    found = []
    for t in range(x.size(1)):
        group_positions = [(i, t - before + i * dilation) for i in range(weight.size(2))]
        found.append(bias + sum(x[:, at] @ weight[:, :, i].T for i, at in group_positions if 0 <= at < x.size(1)))
    return torch.stack(found, 1)


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_by_hand(width, dilation):
    part, x = made(width=width, dilation=dilation), drawn(2, 7, 4)
    assert part.reach == (width - 1) * dilation
    close(part(x, Visibility(causal=True))[0], by_hand(part, x, part.reach))
    close(part(x, Visibility())[0], by_hand(part, x, part.reach - part.reach // 2))


def test_a_gate_is_a_second_convolution():
    part, x = made(width=3, gate=True), drawn(2, 7, 4)
    whole = F.conv1d(F.pad(x.mT, (2, 0)), part.weigh.weight, part.weigh.bias).mT
    close(part(x, Visibility(causal=True))[0], whole[..., :4] * whole[..., 4:].sigmoid())


def test_a_row_is_read_as_if_alone():
    part, x, lengths = made(width=4, dilation=2), drawn(3, 6, 4), torch.tensor(LENGTHS)
    together = part(torch.where(keep(lengths, 6)[:, :, None], x, 9.0), Visibility(lengths=lengths))[0]
    for row, length in enumerate(LENGTHS):
        close(part(x[row : row + 1, :length], Visibility())[0], together[row : row + 1, :length])


def test_what_is_kept_stays_small():
    """However many steps, the state is the last (width − 1) · dilation places of what came in."""
    mixer = shake(ConvolutionMixer(4, 1, "scaled", width=3, dilation=2).double(), 1)
    state, x = mixer.begin(), drawn(2, 30, 4)
    for t in range(30):
        _, state = mixer(x[:, t : t + 1], Visibility(causal=True), state)
        assert state.parts[0].shape == (2, 4, 4)
    assert state.used == 30
    close(state.parts[0], x[:, -4:])


def test_in_a_block_heads_mean_nothing():
    one, two = (Block(8, heads, 12, mixer="convolution").double() for heads in (1, 2))
    two.load_state_dict(one.state_dict())
    close(one(drawn(2, 5, 8), Visibility())[0], two(drawn(2, 5, 8), Visibility())[0])


def test_wrong_sizes():
    with pytest.raises(SeqloomError, match="width of a convolution is at least 1, here 0"):
        Convolution(4, width=0)
    with pytest.raises(SeqloomError, match="dilation of a convolution is at least 1, here 0"):
        Block(8, 2, 12, mixer={"kind": "convolution", "dilation": 0})
    with pytest.raises(SeqloomError, match="unknown setting of ConvolutionMixer 'widht'; did you mean 'width'"):
        Block(8, 2, 12, mixer={"kind": "convolution", "widht": 3})
