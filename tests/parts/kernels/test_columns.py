"""Programs and the columns they go down."""

import pytest

from seqloom.parts.kernels import columns


@pytest.mark.parametrize("size", [(12_288, 2048), (32_768, 3072), (49_152, 2048), (5, 7), (1, 70_000)], ids=str)
def test_every_row_and_column_has_its_program(size):
    for parts in (1, 3):
        (rows, blocks, _), how = columns.launch(*size, parts)
        assert columns.programs(*size, parts) == rows
        assert (rows - 1) * how["TILES"] * columns.EACH < size[0] <= rows * how["TILES"] * columns.EACH
        assert (blocks - 1) * how["LANES"] < size[1] <= blocks * how["LANES"]
