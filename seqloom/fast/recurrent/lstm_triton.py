"""The pointwise part of an LSTM step, all that stands between two matmuls, in one kernel each for forward and backward.
Arithmetic is in float32. The references are `lstm_pointwise` and `lstm_pointwise_backward` in
`fast/recurrent/pointwise.py`.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

BLOCK = 512  # elements of the state for each program


def forward(gates: Tensor, old_c: Tensor, h: Tensor, c: Tensor) -> None:
    """Replaces the gates [R, 4·dim] by i, f, g and o, and writes h and c after the step. `old_c` [R, dim]: before it.
    All contiguous."""
    _forward[_grid(h)](gates, old_c, h, c, h.numel(), h.size(1), BLOCK=BLOCK)


def backward(
    grad_y: Tensor, grad_next: Tensor | None, saved: tuple[Tensor, Tensor, Tensor], grads: tuple[Tensor, Tensor]
) -> None:
    """`grad_y`, `grad_next`: gradients of h' [R, dim] from the output and from the next step, if any; `saved`: i, f, g
    and o [R, 4·dim], c and c' [R, dim]. Writes to `grads`: the gradient of the gates, and the gradient of c in place of
    the one of c'. All contiguous, but rows of `grad_y` may be strided."""
    has_next = grad_next is not None
    _backward[_grid(grads[1])](
        grad_y,
        grad_next if has_next else grad_y,
        *saved,
        *grads,
        grad_y.stride(0),
        grads[1].numel(),
        grads[1].size(1),
        NEXT=has_next,
        BLOCK=BLOCK,
    )


def _grid(state: Tensor) -> tuple[int]:
    return (-(-state.numel() // BLOCK),)


@jit(varying=("size",))
def _forward(gates, old_c, h, c, size, dim, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    gates += offset // dim * (4 * dim) + offset % dim
    i, f, g, o = _load_gates(gates, dim, mask)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    new_c = f * tl.load(old_c + offset, mask=mask, other=0.0) + i * g
    tl.store(c + offset, new_c, mask=mask)
    tl.store(h + offset, (o * _tanh(new_c)).to(h.dtype.element_ty), mask=mask)
    _store_gates(gates, dim, i, f, g, o, mask)


@jit(varying=("size", "row_stride"))
def _backward(
    grad_y,
    grad_next,
    saved,
    old_c,
    new_c,
    grad_gates,
    grad_c,
    row_stride,
    size,
    dim,
    NEXT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    row, column = offset // dim, offset % dim
    i, f, g, o = _load_gates(saved + row * (4 * dim) + column, dim, mask)
    grad_h = tl.load(grad_y + row.to(tl.int64) * row_stride + column, mask=mask, other=0.0).to(tl.float32)
    if NEXT:
        grad_h += tl.load(grad_next + offset, mask=mask, other=0.0).to(tl.float32)
    tanh_c = _tanh(tl.load(new_c + offset, mask=mask, other=0.0))
    grad_new_c = tl.load(grad_c + offset, mask=mask, other=0.0) + grad_h * o * (1.0 - tanh_c * tanh_c)
    grad_i, grad_f = (
        grad_new_c * g * i * (1.0 - i),
        grad_new_c * tl.load(old_c + offset, mask=mask, other=0.0) * f * (1.0 - f),
    )
    grad_g, grad_o = grad_new_c * i * (1.0 - g * g), grad_h * tanh_c * o * (1.0 - o)
    tl.store(grad_c + offset, grad_new_c * f, mask=mask)
    _store_gates(grad_gates + row * (4 * dim) + column, dim, grad_i, grad_f, grad_g, grad_o, mask)


@jit()
def _load_gates(gates, dim, mask):
    i = tl.load(gates, mask=mask, other=0.0).to(tl.float32)
    f = tl.load(gates + dim, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gates + 2 * dim, mask=mask, other=0.0).to(tl.float32)
    o = tl.load(gates + 3 * dim, mask=mask, other=0.0).to(tl.float32)
    return i, f, g, o


@jit()
def _store_gates(gates, dim, i, f, g, o, mask):
    dtype = gates.dtype.element_ty
    tl.store(gates, i.to(dtype), mask=mask)
    tl.store(gates + dim, f.to(dtype), mask=mask)
    tl.store(gates + 2 * dim, g.to(dtype), mask=mask)
    tl.store(gates + 3 * dim, o.to(dtype), mask=mask)


@jit()
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0
