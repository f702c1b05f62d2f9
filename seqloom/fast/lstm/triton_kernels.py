"""What is pointwise in a step of an LSTM, one kernel forward and one back: between two products there is nothing else.
Arithmetic is in float32. The plain twins are `opened` and `slopes` in `fast/lstm/pointwise.py`."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

CELLS = 512  # values of a state a program


def forward(gates: Tensor, before: Tensor, h: Tensor, c: Tensor) -> None:
    """Gates [R, 4·dim], in whose place stand i, f, g and o afterwards, and c before the step [R, dim]. Written: h and c
    after it. All contiguous."""
    _forward[_grid(h)](gates, before, h, c, h.numel(), h.size(1), CELLS=CELLS)


def backward(
    by_y: Tensor, by_next: Tensor | None, kept: tuple[Tensor, Tensor, Tensor], by: tuple[Tensor, Tensor]
) -> None:
    """Slopes by h' [R, dim] from what was said of it and, but for the last step, from the step after; of the step i, f,
    g and o [R, 4·dim], c and c' [R, dim]. Written to `by`: the slope by the gates; and the slope by c in the place of
    the one by c'. All contiguous but for `by_y`, whose rows may be apart."""
    there = by_next is not None
    _backward[_grid(by[1])](
        by_y,
        by_next if there else by_y,
        *kept,
        *by,
        by_y.stride(0),
        by[1].numel(),
        by[1].size(1),
        NEXT=there,
        CELLS=CELLS,
    )


def _grid(state: Tensor) -> tuple[int]:
    return (-(-state.numel() // CELLS),)


@jit(varying=("values",))
def _forward(gates, before, h, c, values, dim, CELLS: tl.constexpr):
    at = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    there = at < values
    gates += at // dim * (4 * dim) + at % dim
    i, f, g, o = _opened(gates, dim, there)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    after = f * tl.load(before + at, mask=there, other=0.0) + i * g
    tl.store(c + at, after, mask=there)
    tl.store(h + at, (o * _tanh(after)).to(h.dtype.element_ty), mask=there)
    _keep(gates, dim, i, f, g, o, there)


@jit(varying=("values", "apart"))
def _backward(
    by_y, by_next, kept, before, after, by_gates, by_c, apart, values, dim, NEXT: tl.constexpr, CELLS: tl.constexpr
):
    at = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    there = at < values
    row, column = at // dim, at % dim
    i, f, g, o = _opened(kept + row * (4 * dim) + column, dim, there)
    by_h = tl.load(by_y + row.to(tl.int64) * apart + column, mask=there, other=0.0).to(tl.float32)
    if NEXT:
        by_h += tl.load(by_next + at, mask=there, other=0.0).to(tl.float32)
    inner = _tanh(tl.load(after + at, mask=there, other=0.0))
    slope = tl.load(by_c + at, mask=there, other=0.0) + by_h * o * (1.0 - inner * inner)
    by_i, by_f = slope * g * i * (1.0 - i), slope * tl.load(before + at, mask=there, other=0.0) * f * (1.0 - f)
    by_g, by_o = slope * i * (1.0 - g * g), by_h * inner * o * (1.0 - o)
    tl.store(by_c + at, slope * f, mask=there)
    _keep(by_gates + row * (4 * dim) + column, dim, by_i, by_f, by_g, by_o, there)


@jit()
def _opened(gates, dim, there):
    i = tl.load(gates, mask=there, other=0.0).to(tl.float32)
    f = tl.load(gates + dim, mask=there, other=0.0).to(tl.float32)
    g = tl.load(gates + 2 * dim, mask=there, other=0.0).to(tl.float32)
    o = tl.load(gates + 3 * dim, mask=there, other=0.0).to(tl.float32)
    return i, f, g, o


@jit()
def _keep(gates, dim, i, f, g, o, there):
    kind = gates.dtype.element_ty
    tl.store(gates, i.to(kind), mask=there)
    tl.store(gates + dim, f.to(kind), mask=there)
    tl.store(gates + 2 * dim, g.to(kind), mask=there)
    tl.store(gates + 3 * dim, o.to(kind), mask=there)


@jit()
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0
