"""One is no plural."""

from __future__ import annotations

import pytest

from seqloom.plural import counted


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 broken lines"),
        (1, "1 broken line"),
        (2, "2 broken lines"),
        (1234, "1,234 broken lines"),
        (None, "– broken lines"),
    ],
)
def test_a_number_and_its_noun(count, told):
    assert counted(count, "broken lines") == told


def test_a_plural_of_two_letters():
    assert (counted(1, "batches"), counted(2, "batches")) == ("1 batch", "2 batches")
