"""Cross-entropy over a large vocabulary without holding all logits at once: in chunks of rows, each chunk's gradient
together with its loss, so that the logits of only one chunk are held, and read a few times, not ten."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.fast.triton_common import runtime
from seqloom.parts.layers.cross_entropy import IGNORE_INDEX, cross_entropy_sum

MAX_LOGITS = 1 << 28  # computed at a time
ALIGNMENT = 64  # in half precision, matmuls of other widths run at a fraction of the speed
LARGE_VOCABULARY = 4096  # from this size on our kernel, which reads logits twice, is faster on a GPU


def _supported(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0, ignore: int = IGNORE_INDEX
) -> bool:
    """Beyond MAX_LOGITS, and where our kernel is faster."""
    size, rows = output.out_features, labels.size(0)
    kernel = runtime.usable(states) and _dtype(states).itemsize < 4 and size >= LARGE_VOCABULARY
    return rows * size > MAX_LOGITS or bool(kernel and rows)


@twin_of(cross_entropy_sum, _supported, compiles=True)
def chunked_cross_entropy(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0, ignore: int = IGNORE_INDEX
) -> Tensor:
    max_logits = 2 * MAX_LOGITS if runtime.usable(states) else MAX_LOGITS  # our kernel works in place
    return _ChunkedCrossEntropy.apply(
        states, output.weight, output.bias, labels, ChunkOptions(smoothing, ignore, _dtype(states), max_logits)
    )


def _dtype(states: Tensor) -> torch.dtype:
    device_type = states.device.type
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else states.dtype


class ChunkOptions(NamedTuple):
    smoothing: float
    ignore: int
    dtype: torch.dtype  # of the matmuls; sums are in float32 at least
    max_logits: int


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Gradients are computed in the forward pass for a grad_output of 1, and scaled by it in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, options: ChunkOptions
    ) -> Tensor:
        exact = torch.promote_types(options.dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=states.device)
        matrix, offset = _cast_and_pad(weight, bias, options.dtype)
        needs_grad = ctx.needs_input_grad
        grad_states = torch.empty_like(states) if needs_grad[0] else None
        grad_weight = torch.zeros(matrix.shape, dtype=exact, device=states.device) if needs_grad[1] else None
        grad_bias = torch.zeros(matrix.size(0), dtype=exact, device=states.device) if needs_grad[2] else None
        size = _chunk_rows(labels.size(0), options.max_logits // matrix.size(0))
        for first in range(0, labels.size(0), size):
            rows = slice(first, first + size)
            h, real = states[rows].to(options.dtype), (labels[rows] != options.ignore).to(options.dtype)[:, None]
            logits = h @ matrix.mT if offset is None else torch.addmm(offset, h, matrix.mT)
            loss, grad_logits, masked = _chunk_loss(logits, labels[rows], weight.size(0), options, any(needs_grad[:3]))
            total += loss
            if grad_states is not None:
                grad_states[rows] = grad_logits @ matrix if masked else (grad_logits @ matrix) * real
            if grad_weight is not None:
                _add_matmul(grad_weight, grad_logits.mT, h if masked else h * real)
            if grad_bias is not None:
                grad_bias += (real.mT @ grad_logits)[0]
        padded, size = (grad_weight, grad_bias), weight.size(0)
        grads = (grad_states, *(None if grad is None else grad[:size] for grad in padded))
        ctx.dtypes = (states.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return *(None if grad is None else (grad * grad_outputs[0]).to(dtype) for grad, dtype in saved), None, None


def _chunk_loss(
    logits: Tensor, labels: Tensor, size: int, options: ChunkOptions, grad: bool
) -> tuple[Tensor, Tensor, bool]:
    """The loss of a chunk, its gradient with respect to the logits, which overwrites them, and whether that is zero in
    rows without a label: in plain torch it is not, as masking the results costs less."""
    if runtime.usable(logits) and logits.dtype.itemsize <= 4 and not torch.compiler.is_compiling():
        from seqloom.fast.loss import triton_kernels

        return (
            triton_kernels.cross_entropy(logits, labels, size, options.smoothing, options.ignore, grad).sum(),
            logits,
            True,
        )
    return *loss_and_gradient(logits, labels, size, options, grad), False


def loss_and_gradient(
    logits: Tensor, labels: Tensor, size: int, options: ChunkOptions, grad: bool
) -> tuple[Tensor, Tensor]:
    """The loss of a chunk and its gradient with respect to the logits, which overwrites them, in plain torch."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    real = labels != options.ignore
    at = labels.masked_fill(~real, 0)[:, None]
    logs = logits.log_softmax(-1, dtype=exact)
    log_p, spread = logs.gather(1, at)[:, 0], options.smoothing / size
    loss = (options.smoothing - 1) * log_p
    if spread:
        loss = loss - spread * logs[:, :size].sum(-1)
    loss = loss.masked_fill(~real, 0.0).sum()
    if not grad:
        return loss, logits
    grad_logits = torch.exp(logs, out=logits)
    if spread:
        grad_logits[:, :size] -= spread
    # The label's own is computed in full precision: near certainty it is a small difference of numbers near 1.
    grad_logits.scatter_(1, at, (log_p.exp() - (1 - options.smoothing) - spread).to(grad_logits.dtype)[:, None])
    return loss, grad_logits


def _add_matmul(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b"""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif runtime.MIXED_ADDMM and a.is_cuda and not torch.compiler.is_compiling():
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)  # pyright: ignore
    else:
        total += a @ b


def _cast_and_pad(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """W and b in `dtype`; in half precision padded to a multiple of ALIGNMENT rows, for tokens of probability 0."""
    more = -weight.size(0) % ALIGNMENT if dtype.itemsize < 4 else 0
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    if not more:
        return weight, bias
    bias = weight.new_zeros(weight.size(0)) if bias is None else bias
    return F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=float("-inf"))


def _chunk_rows(total: int, most: int) -> int:
    """Rows of a chunk: nearly equal chunks, in multiples of 128 rows where there are many."""
    chunks = -(-total // max(most, 1))
    rows = -(-total // chunks)
    return rows if rows < 128 else -(-rows // 128) * 128
