"""The cache of keys and values is what concatenating and indexing would give."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.parts.attention.kv_cache import Cache
from tests.laws import drawn


@pytest.mark.parametrize("width", [4, 5])
@settings(max_examples=60, deadline=None)
@given(
    room=st.none() | st.integers(1, 8),
    moves=st.lists(
        st.one_of(
            st.integers(1, 3),  # so many new steps
            st.lists(st.integers(0, 2), min_size=3, max_size=3),  # these rows
        ),
        max_size=8,
    ),
)
def test_cache_is_a_concatenation(room, moves, width):
    """Whatever is appended and picked, the cache gives what plain concatenation and indexing would; values may be
    wider than keys, as with an additive score whose `hidden` is set."""
    cache, keys, values = Cache(room), torch.empty(3, 2, 0, 4), torch.empty(3, 2, 0, width)
    for number, move in enumerate([1, *moves]):
        if isinstance(move, list):
            rows = torch.tensor(move)
            cache, keys, values = cache.pick(rows), keys[rows], values[rows]
            continue
        k, v = (drawn(3, 2, move, dim, seed=number).float() for dim in (4, width))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        found = cache.append(k, v)
        assert torch.equal(found[0], keys)
        assert torch.equal(found[1], values)
        assert cache.used == keys.size(2)


def test_a_cache_with_room_is_allocated_once():
    cache = Cache(room=4)
    first, _ = cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    second, _ = cache.append(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    assert first.data_ptr() == second.data_ptr()
    assert second[0, 0, :, 0].tolist() == [0.0, 1.0, 1.0]


def test_without_room_the_first_call_copies_nothing():
    k = torch.zeros(1, 1, 3, 2)
    assert Cache().append(k, k)[0] is k


def test_picking_an_empty_cache():
    cache = Cache(5).pick(torch.tensor([0, 1]))
    assert (cache.used, cache.room, cache.keys) == (0, 5, None)


@pytest.mark.parametrize("room", [None, 4])
def test_two_picks_of_one_cache_do_not_meet(room):
    cache, one = Cache(room), torch.ones(1, 1, 1, 2)
    cache.append(one, one)
    left, right = cache.pick(torch.tensor([0])), cache.pick(torch.tensor([0]))
    left_keys, _ = left.append(2 * one, 2 * one)
    right_keys, _ = right.append(3 * one, 3 * one)
    assert left_keys[0, 0, :, 0].tolist() == [1.0, 2.0]
    assert right_keys[0, 0, :, 0].tolist() == [1.0, 3.0]
