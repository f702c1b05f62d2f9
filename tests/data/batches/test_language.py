"""Batches of text: what each kind holds, and that nothing is lost or counted twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.errors import SeqloomError

TEXT = np.arange(4, 204)  # every token says where it stands


def stream(size: int = 200, **options) -> Stream:
    return Stream(np.arange(4, 4 + size), None, StreamOptions(**options))


def labels(batch) -> list[int]:
    flat = batch.tokens[:, 1:].flatten()
    return (flat if batch.index is None else flat[batch.index]).tolist()


def planned(one: Stream, rows: int = 3, epoch: int = 0, seed: int = 1):
    return one.plan(seed=seed, epoch=epoch, batch_rows=rows, batch_tokens=None)


@pytest.mark.parametrize("way", ["segments", "random", "stream", "blocks"])
def test_the_same_seed_and_epoch_give_the_same_plan(way):
    one = stream(batches=way, length=7)
    assert np.array_equal(planned(one).order, planned(one).order)
    if way != "stream":
        assert not np.array_equal(planned(one).order, planned(one, epoch=1).order)
    for rows in planned(one):
        batch = one.batch(rows)
        assert batch.count == one.count(rows) == len(labels(batch))
        assert (
            (batch.tokens[:, 1:] - batch.tokens[:, :-1])
            .flatten()[batch.index if batch.index is not None else ...]
            .eq(1)
            .all()
        ), "a label is the next token"


def test_streams_go_on_where_they_ended():
    one = stream(batches="stream", length=7)
    batches = [one.batch(rows) for rows in planned(one)]
    for before, after in pairwise(batches):
        assert torch.equal(before.tokens[:, -1], after.tokens[:, 0])
        assert before.continues
    found = [label for batch in batches for label in labels(batch)]
    assert len(found) == len(set(found)) == 3 * (199 // 3)
    assert len(batches) == -(-(199 // 3) // 7)


def test_streams_may_advance_by_random_lengths():
    one = stream(5000, batches="stream", length=30, vary_length=True)
    plans = [planned(one, epoch=epoch) for epoch in (0, 0, 1)]
    widths = [[one.batch(rows).tokens.size(1) - 1 for rows in plan] for plan in plans]
    assert widths[0] == widths[1] != widths[2]
    assert len(set(widths[0])) > 5
    assert 25 < np.mean(widths[0][:-1]) < 32
    assert sum(widths[0]) == 4999 // 3


def test_blocks_hold_every_token_once_and_segments_overlap():
    blocks = stream(batches="blocks", length=7)
    found = sorted(label for rows in planned(blocks) for label in labels(blocks.batch(rows)))
    assert found == TEXT[1:].tolist()
    segments = stream(batches="segments", length=6, stride=2)
    starts = sorted(one for rows in planned(segments) for one in segments.batch(rows).tokens[:, 0].tolist())
    assert starts == TEXT[:-1:2].tolist()


def test_random_stretches_are_anywhere():
    one = stream(2000, batches="random", length=50)
    starts = [
        start for epoch in range(20) for rows in planned(one, epoch=epoch) for start in one.batch(rows).tokens[:, 0]
    ]
    assert len({int(start) % 50 for start in starts}) == 50
    assert len(planned(one).order) == len(one) == 40


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_whole_text_is_guessed_once(carry, rows):
    one = stream(batches="stream", length=7)
    found = sorted(label for chosen in one.full_plan(7, rows, carry) for label in labels(one.batch(chosen)))
    assert found == TEXT[1:].tolist()


def test_lines_are_padded_and_counted():
    rows = [[BOS, 5, 6, 7, EOS], [BOS, 8, EOS], [BOS, EOS]]
    one = Stream(np.concatenate(rows), np.array([0, 5, 8, 10]), StreamOptions(batches="lines"))
    batch = one.batch(np.array([0, 2, 1]))
    assert batch.tokens.tolist() == [rows[0], [BOS, EOS, PAD, PAD, PAD], [BOS, 8, EOS, PAD, PAD]]
    assert labels(batch) == [5, 6, 7, EOS, EOS, 8, EOS]
    assert batch.count == 7 == one.count(np.array([0, 1, 2])) == one.labels
    assert not batch.continues


def test_pieces_are_of_rows_and_those_of_a_stream_go_on():
    one = stream(batches="stream", length=8)
    batch = one.batch(planned(one)[0])
    parts = batch.micro_batches(2)
    assert [part.tokens.shape for part in parts] == [(1, 9), (2, 9)]
    assert all(part.continues for part in parts)
    assert torch.equal(torch.cat([part.tokens for part in parts]), batch.tokens)
    assert sum(part.count for part in parts) == batch.count
    apart = stream(batches="blocks", length=8)
    batch = apart.batch(np.concatenate(list(planned(apart))))
    parts = batch.micro_batches(4)
    assert sorted(label for part in parts for label in labels(part)) == sorted(labels(batch))
    assert sum(len(part.rows) for part in parts) == len(batch.rows)
    assert batch.zero_weight_row().count == 0


def test_costs_follow_the_batches():
    one = stream(batches="blocks", length=7)
    plan = planned(one)
    assert one.costs(plan).tolist() == [one.batch(rows).tokens[:, 1:].numel() for rows in plan]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": "segment"}, "unknown kind of batches 'segment'; did you mean 'segments'"),
        ({"length": 0}, "length must be a whole number of 1 or more"),
        ({"stride": 5}, "stride goes with batches: segments"),
        ({"vary_length": True, "batches": "blocks"}, "vary_length goes with batches: stream"),
        ({"condition": True, "batches": "stream"}, "condition needs batches: lines, not stream"),
        ({"tokens": "letters"}, "unknown kind of tokens 'letters'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(SeqloomError, match=message):
        StreamOptions(**options)


def test_a_text_of_one_token_is_too_short():
    with pytest.raises(SeqloomError, match="too short"):
        stream(1)
