"""Visibility: the dense mask against its definition, position by position."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.parts.visibility import Visibility, keep, last, mean

CPU = torch.device("cpu")


@given(
    t=st.integers(1, 5),
    before=st.integers(0, 4),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 6),
    lengths=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_keep_is_its_definition(t, before, causal, window, lengths):
    s = before + t
    visible = Visibility(
        causal=causal, window=window, lengths=None if lengths is None else torch.tensor(lengths), offset=before
    )
    found = visible.keep(t, s, CPU)
    rows = len(lengths) if lengths is not None else 1
    wanted = torch.tensor(
        [
            [
                [
                    (lengths is None or key < lengths[row])
                    and (not causal or key <= query + before)
                    and (window is None or abs(query + before - key) < window)
                    for key in range(s)
                ]
                for query in range(t)
            ]
            for row in range(rows)
        ]
    )
    if found is None:
        assert wanted.all()
    else:
        assert torch.equal(found.expand(rows, 1, t, s)[:, 0], wanted)


def test_where_all_is_visible_there_is_no_mask():
    assert Visibility().keep(3, 3, CPU) is None
    assert Visibility(causal=True, offset=4).keep(1, 5, CPU) is None  # one new query after everything else


def test_keep_last_and_mean_of_padded_rows():
    lengths = torch.tensor([1, 3])
    states = torch.tensor([[[1.0], [torch.nan], [9.0]], [[1.0], [2.0], [6.0]]])
    assert keep(lengths, 3).tolist() == [[True, False, False], [True, True, True]]
    assert last(states, lengths).tolist() == [[1.0], [6.0]]
    assert mean(states, lengths).tolist() == [[1.0], [3.0]]
    assert last(states[1:], None).tolist() == [[6.0]]
    assert mean(states[1:], None).tolist() == [[3.0]]
