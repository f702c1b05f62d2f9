"""Launch grids of kernels that sum columns of a matrix. Each program sums its own tiles; the programs' sums are added
afterwards, always in the same order, so results are deterministic."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

TILE_ROWS = 8  # as many as a random number of 128 bits serves
LANES = 1024  # columns of a program at most
WARP_COLUMNS = 256  # columns of a warp, eight a thread: 16 bytes in half precision
TILES = 8  # of a program at most, one below the other
PROGRAMS = 1024  # with fewer, each takes fewer tiles: this keeps more of the GPU busy


def programs(vectors: int, dim: int, parts: int = 1) -> int:
    """Number of partial sums of a column; `parts`: matrices in one launch."""
    return -(-vectors // (TILE_ROWS * _tiles(vectors, dim, parts)))


def launch(vectors: int, dim: int, parts: int = 1) -> tuple[tuple[int, int, int], dict[str, int]]:
    lanes = _lanes(dim)
    options = {"LANES": lanes, "TILES": _tiles(vectors, dim, parts), "num_warps": max(1, lanes // WARP_COLUMNS)}
    return (programs(vectors, dim, parts), -(-dim // lanes), parts), options


def _lanes(dim: int) -> int:
    """Columns of a program: a divisor of `dim` if possible, so that no lane is idle."""
    power = dim & -dim
    return min(LANES, power if power >= WARP_COLUMNS else max(32, 1 << (dim - 1).bit_length()))


def _tiles(vectors: int, dim: int, parts: int) -> int:
    tiles = vectors * parts * -(-dim // _lanes(dim)) // (TILE_ROWS * PROGRAMS)
    return min(TILES, 1 << max(tiles.bit_length() - 1, 0))


@jit()
def rows(tile, half: tl.constexpr):
    """Row numbers of half a tile, [4, 1]: a whole tile would exceed the registers."""
    return tile * 8 + half * 4 + tl.arange(0, 4)[:, None]
