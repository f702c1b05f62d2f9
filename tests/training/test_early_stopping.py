"""Patience: counted in validations without a better score."""

from __future__ import annotations

from seqloom.training.early_stopping import EarlyStopping


def test_it_stops_after_so_many_validations_without_a_better_one():
    stopping = EarlyStopping(2)
    seen = []
    for better in (True, False, True, False, False):
        stopping.update(better)
        seen.append(stopping.stop)
    assert seen == [False, False, False, False, True]


def test_without_patience_it_never_stops():
    stopping = EarlyStopping(None)
    for _ in range(100):
        stopping.update(False)
    assert not stopping.stop
