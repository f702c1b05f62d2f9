"""Padding, cutting, and which labels are real."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.batches.collate import Batch, cut, pad, split_points
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.errors import SeqloomError

ROWS = [[5, 6, 7], [8], [], [9, 4]]


def test_pad_after():
    padded = pad(ROWS)
    assert padded.tokens.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0], [9, 4, 0]]
    assert padded.tokens.dtype == padded.lengths.dtype == torch.int64
    assert padded.lengths.tolist() == list(padded.host) == [3, 1, 0, 2]
    assert not padded.full
    assert pad([[1, 2], [3, 4]]).full


def test_pad_before():
    padded = pad(ROWS, where="before", value=-1)
    assert padded.tokens.tolist() == [[5, 6, 7], [-1, -1, 8], [-1, -1, -1], [-1, 9, 4]]
    assert padded.host == (3, 1, 0, 2)


def test_pad_takes_arrays_and_nothing():
    assert pad([np.array([1, 2], dtype=np.int32), [3]]).tokens.tolist() == [[1, 2], [3, 0]]
    assert pad([]).tokens.shape == (0, 0)
    assert pad([[], []]).tokens.shape == (2, 0)
    with pytest.raises(SeqloomError, match="did you mean 'before'"):
        pad(ROWS, where="befor")


def test_cut():
    assert cut([1, 2, 3, 4], 3) == [1, 2, 3]
    assert cut([1, 2, 3, 4], 3, drop="head") == [2, 3, 4]
    assert cut([1, 2, 3], 3, drop="head") == cut([1, 2, 3], None) == [1, 2, 3]
    assert cut([1, 2, 3], 0, drop="head") == cut([1, 2, 3], 0) == []
    with pytest.raises(SeqloomError, match="unknown end to drop 'tial'; did you mean 'tail'"):
        cut([1], 3, drop="tial")


def make(sources: list[list[int]], targets: list[list[int]], rows: tuple[int, ...] | None = None) -> Batch:
    return Batch.of(pad([[*row, EOS] for row in sources]), pad([[BOS, *row, EOS] for row in targets]), rows)


def labels(batch: Batch) -> list[int]:
    return batch.target.tokens[:, 1:].reshape(-1)[batch.index].tolist()


def test_index_picks_the_real_labels():
    batch = make([[5], [6], [7]], [[11, 12], [13, 14, 15], []])
    assert batch.index.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert labels(batch) == [11, 12, EOS, 13, 14, 15, EOS, EOS]
    assert batch.rows == (0, 1, 2)


sides = st.lists(
    st.tuples(st.lists(st.integers(4, 99), max_size=6), st.lists(st.integers(4, 99), max_size=6)), min_size=1
)


@given(sides, st.integers(1, 8))
def test_pieces_hold_the_same_rows(pairs, n):
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    batch = make(sources, targets, tuple(range(100, 100 + len(pairs))))
    pieces = batch.micro_batches(n)
    sizes = [len(piece.rows) for piece in pieces]
    assert len(pieces) == min(n, len(pairs))
    assert max(sizes) - min(sizes) <= 1
    assert sum((piece.rows for piece in pieces), ()) == batch.rows
    assert [label for piece in pieces for label in labels(piece)] == labels(batch)
    assert labels(batch) == [label for target in targets for label in [*target, EOS]]
    for piece in pieces:
        alone = make([sources[i - 100] for i in piece.rows], [targets[i - 100] for i in piece.rows])
        for got, expected in ((piece.source, alone.source), (piece.target, alone.target)):
            assert torch.equal(got.tokens, expected.tokens)
            assert got.lengths.tolist() == list(got.host) == list(expected.host)


def test_pieces_need_a_number():
    with pytest.raises(ValueError, match="not 0"):
        make([[5]], [[6]]).micro_batches(0)


def test_to_another_device_and_back():
    batch = make([[5]], [[6, 7]]).to("meta")
    for tensor in (batch.source.tokens, batch.source.lengths, batch.target.tokens, batch.index):
        assert tensor.device.type == "meta"
    assert batch.target.host == (4,)
    assert make([[5]], [[6, 7]]).to("cpu").target.tokens.tolist() == [[BOS, 6, 7, EOS]]
    assert PAD == 0


@given(st.integers(0, 50), st.integers(1, 60))
def test_cuts_are_nearly_equal_and_leave_nothing_out(total, n):
    found = split_points(total, n) or [(0, total)]
    assert [row for a, b in found for row in range(a, b)] == list(range(total))
    assert len(found) == max(min(n, total), 1)
    assert max(b - a for a, b in found) - min(b - a for a, b in found) <= 1
