"""Programs that go down columns of a matrix, whose sums their threads keep to themselves. The programs' sums are added
up afterwards, always in the same order."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

EACH = 8  # rows of a tile: as many as a random number of 128 bits serves
LANES = 1024  # columns of a program at most
NEIGHBOURS = 256  # columns of a warp, eight a thread: 16 bytes in half precision
TILES = 8  # of a program at most, one below the other
PROGRAMS = 1024  # with fewer of them they take fewer tiles each, which keeps more of the chip at work


def programs(vectors: int, dim: int, parts: int = 1) -> int:
    """How many sums of a column there are, where `parts` matrices are gone through at once."""
    return -(-vectors // (EACH * _tiles(vectors, dim, parts)))


def launch(vectors: int, dim: int, parts: int = 1) -> tuple[tuple[int, int, int], dict[str, int]]:
    lanes = _lanes(dim)
    how = {"LANES": lanes, "TILES": _tiles(vectors, dim, parts), "num_warps": max(1, lanes // NEIGHBOURS)}
    return (programs(vectors, dim, parts), -(-dim // lanes), parts), how


def _lanes(dim: int) -> int:
    """Such that no lane is idle, if it can be."""
    fitting = dim & -dim
    return min(LANES, fitting if fitting >= NEIGHBOURS else max(32, 1 << (dim - 1).bit_length()))


def _tiles(vectors: int, dim: int, parts: int) -> int:
    most = vectors * parts * -(-dim // _lanes(dim)) // (EACH * PROGRAMS)
    return min(TILES, 1 << max(most.bit_length() - 1, 0))


@jit()
def rows(tile, half: tl.constexpr):
    """Half of a tile, four rows, [4, 1]: more would not find room in registers."""
    return tile * 8 + half * 4 + tl.arange(0, 4)[:, None]
