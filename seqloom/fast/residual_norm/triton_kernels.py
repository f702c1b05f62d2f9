"""x + dropout(y), its layer norm, or both in one kernel each for forward and backward: a vector is read once, and
backward draws the dropout mask again instead of reading it. The reference is in `fast/residual_norm/gpu.py`.

One random number of 128 bits serves eight values, so that drawing takes less time than reading: dropout probabilities
are multiples of 1/65536.
"""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

VECTORS = 8  # of a program: as many as a random number of 128 bits serves
FEW_VECTORS = 4096  # with fewer, a program takes one: this keeps more of the GPU busy
PROGRAMS = 2048  # with more, each takes several groups of vectors in backward, for fewer partial sums
GROUPS = 4  # of a program at most
PROBABILITY_STEPS = 1 << 16


def forward(
    inputs: tuple[Tensor, Tensor | None],
    norm: tuple[Tensor, Tensor, float] | None,
    drop: tuple[Tensor, float] | None,
    outputs: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> None:
    """`inputs`: x and y [N, dim]; `norm`: weight, bias and ε; `drop`: seed and p. Writes to `outputs`: x + dropout(y),
    its norm, and the mean and 1/std of each vector, [N, 2]."""
    x, y = inputs
    weight, bias, eps = norm or (None, None, 0.0)
    options = _launch_options(x)
    grid = (-(-x.size(0) // options["VECTORS"]),)
    seed, threshold, scale = dropout_args(drop)
    flags = {"ADD": y is not None, "NORM": norm is not None, "DROPOUT": drop is not None}
    _forward[grid](x, y, weight, bias, seed, *outputs, *x.shape, eps, threshold, scale, **flags, **options)


def backward(
    grads: tuple[Tensor | None, Tensor | None],
    stats: tuple[Tensor | None, Tensor | None, Tensor | None],
    drop: tuple[Tensor, float] | None,
    outputs: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> None:
    """`grads`: of the sum and of the norm; `stats`: the sum, mean and 1/std, and the weight, if there was a norm.
    Writes to `outputs`: the gradients of x and y, and each program's sums for weight and bias, [2, programs, dim]."""
    grad = next(part for part in grads if part is not None)
    grid, options = (programs(grad.size(0)),), _launch_options(grad) | {"GROUPS": _group_count(grad.size(0))}
    seed, threshold, scale = dropout_args(drop)
    flags = {"ADD_TOTAL": grads[0] is not None, "NORM": grads[1] is not None, "DROPOUT": drop is not None}
    flags |= {"GRAD_X": outputs[0] is not None, "GRAD_Y": outputs[1] is not None}
    _backward[grid](*grads, *stats, seed, *outputs, *grad.shape, grid[0], threshold, scale, **flags, **options)


def programs(vectors: int) -> int:
    """Number of programs in backward."""
    return vectors if vectors < FEW_VECTORS else -(-vectors // (VECTORS * _group_count(vectors)))


def dropout_args(drop: tuple[Tensor, float] | None) -> tuple[Tensor | None, int, float]:
    """The seed, the threshold below which 16 random bits mean dropped, and the scale 1/(1 − p)."""
    if drop is None:
        return None, 0, 1.0
    threshold = round(drop[1] * PROBABILITY_STEPS)
    return drop[0], threshold, PROBABILITY_STEPS / max(PROBABILITY_STEPS - threshold, 1)


def _group_count(vectors: int) -> int:
    return 1 if vectors < FEW_VECTORS else min(GROUPS, 1 << max((vectors // (VECTORS * PROGRAMS)).bit_length() - 1, 0))


def _launch_options(x: Tensor) -> dict[str, int]:
    vectors, dim = x.shape
    lanes = max(32, 1 << (dim - 1).bit_length())
    return {
        "LANES": lanes,
        "VECTORS": 1 if vectors < FEW_VECTORS else VECTORS,
        "num_warps": max(1, min(16, lanes // 512)),
    }


@jit(varying=("vectors", "threshold"))
def _forward(
    x,
    y,
    weight,
    bias,
    seed,
    total,
    normed,
    stats,
    vectors,
    dim,
    eps,
    threshold,
    scale,
    ADD: tl.constexpr,
    NORM: tl.constexpr,
    DROPOUT: tl.constexpr,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
):
    column = tl.arange(0, LANES)
    in_row = column < dim
    if NORM:
        gamma = tl.load(weight + column, mask=in_row, other=0.0).to(tl.float32)
        beta = tl.load(bias + column, mask=in_row, other=0.0).to(tl.float32)
    if DROPOUT:
        a, b, c, d = _random_words(seed, tl.program_id(0), LANES)
    for i in tl.static_range(VECTORS):
        row = tl.program_id(0).to(tl.int64) * VECTORS + i
        offset, mask = row * dim + column, in_row & (row < vectors)
        value = tl.load(x + offset, mask=mask, other=0.0)
        if ADD:
            branch = tl.load(y + offset, mask=mask, other=0.0).to(tl.float32)
            if DROPOUT:
                branch = tl.where(_sixteen_bits(a, b, c, d, i) >= threshold, branch * scale, 0.0)
            value = (value.to(tl.float32) + branch).to(value.dtype)
            tl.store(total + offset, value, mask=mask)
        if NORM:
            value = value.to(tl.float32)
            mean = tl.sum(value, 0) / dim
            value = tl.where(in_row, value - mean, 0.0)
            inv_std = 1.0 / tl.sqrt(tl.sum(value * value, 0) / dim + eps)
            tl.store(normed + offset, (value * inv_std * gamma + beta).to(normed.dtype.element_ty), mask=mask)
            tl.store(stats + 2 * row, mean, mask=row < vectors)
            tl.store(stats + 2 * row + 1, inv_std, mask=row < vectors)


@jit(varying=("vectors", "programs", "threshold"))
def _backward(
    grad_total,
    grad_normed,
    total,
    stats,
    weight,
    seed,
    grad_x,
    grad_y,
    grad_affine,
    vectors,
    dim,
    programs,
    threshold,
    scale,
    ADD_TOTAL: tl.constexpr,
    NORM: tl.constexpr,
    DROPOUT: tl.constexpr,
    GRAD_X: tl.constexpr,
    GRAD_Y: tl.constexpr,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    column = tl.arange(0, LANES)
    in_row = column < dim
    if NORM:
        gamma = tl.load(weight + column, mask=in_row, other=0.0).to(tl.float32)
        grad_gamma, grad_beta = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for group_index in range(GROUPS):
        group = tl.program_id(0) * GROUPS + group_index
        if DROPOUT:
            a, b, c, d = _random_words(seed, group, LANES)
        for i in tl.static_range(VECTORS):
            row = group.to(tl.int64) * VECTORS + i
            offset, mask = row * dim + column, in_row & (row < vectors)
            grad = tl.zeros([LANES], tl.float32)
            if NORM:
                mean = tl.load(stats + 2 * row, mask=row < vectors, other=0.0)
                inv_std = tl.load(stats + 2 * row + 1, mask=row < vectors, other=0.0)
                grad_hat = tl.load(grad_normed + offset, mask=mask, other=0.0).to(tl.float32)
                hat = (tl.load(total + offset, mask=mask, other=0.0).to(tl.float32) - mean) * inv_std
                hat = tl.where(mask, hat, 0.0)
                grad_gamma += grad_hat * hat
                grad_beta += grad_hat
                grad_hat *= gamma
                grad = (grad_hat - tl.sum(grad_hat, 0) / dim - hat * (tl.sum(grad_hat * hat, 0) / dim)) * inv_std
            if ADD_TOTAL:
                grad += tl.load(grad_total + offset, mask=mask, other=0.0).to(tl.float32)
            if GRAD_X:
                tl.store(grad_x + offset, grad.to(grad_x.dtype.element_ty), mask=mask)
            if GRAD_Y:
                if DROPOUT:
                    grad = tl.where(_sixteen_bits(a, b, c, d, i) >= threshold, grad * scale, 0.0)
                tl.store(grad_y + offset, grad.to(grad_y.dtype.element_ty), mask=mask)
    if NORM:
        target = grad_affine + tl.program_id(0) * dim + column
        tl.store(target, grad_gamma, mask=in_row)
        tl.store(target + programs * dim, grad_beta, mask=in_row)


@jit()
def _random_words(seed, group, LANES: tl.constexpr):
    """Philox with seven rounds, the fewest that pass all tests (Salmon et al. 2011, table 2)."""
    return tl.randint4x(tl.load(seed), group * LANES + tl.arange(0, LANES), 7)


@jit()
def _sixteen_bits(a, b, c, d, i: tl.constexpr):
    """The i-th 16 of 128 bits."""
    word = a
    if i // 2 == 1:
        word = b
    if i // 2 == 2:
        word = c
    if i // 2 == 3:
        word = d
    return ((word >> (i % 2 * 16)) & 0xFFFF).to(tl.int32)
