"""The laws of a plan: everything once, within the budget, reproducible, little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqloom.data.batches.bucketing import Plan, _batch_ends, _stable_argsort, padding_share, plan
from seqloom.errors import SeqloomError

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(2, 30)), max_size=80)


@given(lengths, st.integers(1, 200) | st.none(), st.integers(1, 20) | st.none(), st.integers(0, 3))
def test_everything_once_and_within_the_budget(pairs, tokens, rows, epoch):
    if tokens is None and rows is None:
        rows = 7
    source, target = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    batches = plan(source, target, seed=3, epoch=epoch, batch_tokens=tokens, batch_rows=rows)
    assert sorted(batches.order.tolist()) == list(range(len(pairs)))
    assert sum(len(batch) for batch in batches) == len(pairs)
    for batch in batches:
        assert 1 <= len(batch) <= (rows or len(pairs))
        width = max(int(source[batch].max()), int(target[batch].max()))
        assert tokens is None or len(batch) == 1 or len(batch) * width <= tokens
    assert 0 <= padding_share(batches, source, target) < 1


def realistic(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Sentences: lengths spread as in text, targets about as long as their sources."""
    random = np.random.default_rng(0)
    source = np.clip(random.lognormal(2.8, 0.6, n), 2, 150).astype(np.int32)
    return source, np.clip(source * random.normal(1.05, 0.15, n), 3, 180).astype(np.int32)


def test_like_lengths_waste_little():
    source, target = realistic()
    bucketed = plan(source, target, seed=1, epoch=0, batch_tokens=4000)
    assert padding_share(bucketed, source, target) < 0.10
    order = np.random.default_rng(1).permutation(len(source))
    ends = np.minimum(np.arange(128, len(source) + 128, 128), len(source))
    assert padding_share(Plan(order, ends), source, target) > 0.30


def test_most_batches_have_one_source_length():
    source, target = realistic()
    batches = plan(source, target, seed=1, epoch=0, batch_rows=64)
    alike = sum(len(set(source[batch].tolist())) == 1 for batch in batches)
    assert alike > 0.75 * len(batches)


def test_a_batch_is_as_large_as_it_can_be():
    source = target = np.full(10, 5)
    assert sorted(len(batch) for batch in plan(source, target, seed=0, epoch=0, batch_tokens=15)) == [1, 3, 3, 3]
    assert [len(b) for b in plan(source, target, seed=0, epoch=0, batch_tokens=4)] == [1] * 10


def test_reproducible():
    source, target = realistic(500)

    def orders(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in plan(source, target, seed=seed, epoch=epoch, batch_rows=16)]

    assert orders(1, 0) == orders(1, 0)
    assert orders(1, 0) != orders(1, 1)
    assert orders(1, 0) != orders(2, 0)
    assert {frozenset(batch) for batch in orders(1, 0)} != {frozenset(batch) for batch in orders(1, 1)}
    assert orders(-1, 0), "any whole number is a seed"


def test_batches_come_in_random_order():
    source, target = realistic(2000)
    means = [float(source[batch].mean()) for batch in plan(source, target, seed=1, epoch=0, batch_rows=16)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_waste_by_hand():
    source, target = np.array([2, 4, 3]), np.array([2, 2, 5])
    batches = Plan(np.array([0, 1, 2]), np.array([2, 3]))
    assert padding_share(batches, source, target) == pytest.approx(1 - 18 / 20)


def test_indexing():
    batches = Plan(np.array([4, 2, 7]), np.array([2, 3]))
    assert [batch.tolist() for batch in batches] == [[4, 2], [7]]
    assert len(batches) == 2
    for place in (2, -1):
        with pytest.raises(IndexError):
            batches[place]


@pytest.mark.parametrize("size", [{}, {"batch_rows": 0}, {"batch_tokens": -5}, {"batch_rows": -1, "batch_tokens": 5}])
def test_a_size_is_needed(size):
    with pytest.raises(SeqloomError, match="batch_tokens"):
        plan(np.array([1]), np.array([2]), seed=0, epoch=0, **size)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 120), st.integers(1, 20))
@example([0, 0], 1, 2)
def test_cutting_in_runs_is_cutting_one_by_one(widths, tokens, rows):
    ends, first = [], 0
    while first < len(widths):
        last = first + 1
        while (
            last < len(widths) and last - first < rows and (last - first + 1) * max(widths[first : last + 1]) <= tokens
        ):
            last += 1
        first = last
        ends.append(first)
    assert _batch_ends(np.array(widths, np.int64), tokens, rows).tolist() == ends


@given(st.lists(st.integers(0, 5) | st.integers(0, 2**62), max_size=40))
def test_the_quick_sort_is_stable(keys):
    key = np.array(keys, np.int64)
    assert _stable_argsort(key).tolist() == np.argsort(key, kind="stable").tolist()
