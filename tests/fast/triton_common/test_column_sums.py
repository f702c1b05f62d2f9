"""Launch grids cover all rows and columns."""

import pytest

from seqloom.fast.triton_common import column_sums


@pytest.mark.parametrize("size", [(12_288, 2048), (32_768, 3072), (49_152, 2048), (5, 7), (1, 70_000)], ids=str)
def test_every_row_and_column_has_one_program(size):
    for parts in (1, 3):
        (rows, blocks, _), options = column_sums.launch(*size, parts)
        assert column_sums.programs(*size, parts) == rows
        assert (
            (rows - 1) * options["TILES"] * column_sums.TILE_ROWS
            < size[0]
            <= rows * options["TILES"] * column_sums.TILE_ROWS
        )
        assert (blocks - 1) * options["LANES"] < size[1] <= blocks * options["LANES"]
