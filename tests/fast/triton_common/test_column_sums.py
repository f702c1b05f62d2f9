"""Programs and the columns they go down."""

import pytest

from seqloom.fast.triton_common import column_sums


@pytest.mark.parametrize("size", [(12_288, 2048), (32_768, 3072), (49_152, 2048), (5, 7), (1, 70_000)], ids=str)
def test_every_row_and_column_has_its_program(size):
    for parts in (1, 3):
        (rows, blocks, _), how = column_sums.launch(*size, parts)
        assert column_sums.programs(*size, parts) == rows
        assert (rows - 1) * how["TILES"] * column_sums.EACH < size[0] <= rows * how["TILES"] * column_sums.EACH
        assert (blocks - 1) * how["LANES"] < size[1] <= blocks * how["LANES"]
