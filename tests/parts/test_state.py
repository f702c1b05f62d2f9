"""States: picking rows of nested tuples."""

from typing import NamedTuple

import torch

from seqloom.parts.state import Decoding, join, pick


class Named(NamedTuple):
    left: object
    right: object


def test_pick_reaches_every_tensor_and_keeps_the_shape_of_the_nest():
    a, b = torch.arange(6).view(3, 2), torch.arange(3)
    picked = pick((a, (Named(b, None), "word")), torch.tensor([2, 2, 0]))
    assert torch.equal(picked[0], a[[2, 2, 0]])
    assert isinstance(picked[1][0], Named)
    assert picked[1][0].left.tolist() == [2, 2, 0]
    assert picked[1][0].right is None
    assert picked[1][1] == "word"


def test_what_was_picked_apart_is_joined_again():
    state = ((torch.arange(6).view(3, 2), None), torch.arange(3))
    joined = join([pick(state, torch.tensor(rows)) for rows in ([0], [1, 2])])
    assert torch.equal(joined[0][0], state[0][0])
    assert joined[0][1] is None
    assert torch.equal(joined[1], state[1])
    assert join([None, None]) is None


def test_what_was_read_is_never_repeated_for_hypotheses():
    state = Decoding(torch.arange(2), torch.arange(6))
    same = state.pick(torch.tensor([1, 1, 0, 5, 5, 4]))
    assert same.context is state.context
    assert same.rows.tolist() == [1, 1, 0, 5, 5, 4]
    fewer = state.pick(torch.tensor([3, 4, 5]), torch.tensor([1]))
    assert fewer.context.tolist() == [1]
    assert fewer.rows.tolist() == [3, 4, 5]
