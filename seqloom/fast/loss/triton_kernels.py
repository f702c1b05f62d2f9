"""Cross-entropy and its gradient of the logits in one kernel: a row of logits is read from memory once, then from the
cache, and overwritten. The reference is `loss_and_gradient` in `fast/loss/chunked.py`."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

GROUP = 8  # logits that one thread reads at once: 16 bytes in half precision
LANES = 512  # groups at a time
WARPS = 8


def cross_entropy(logits: Tensor, labels: Tensor, size: int, smoothing: float, ignore: int, with_grad: bool) -> Tensor:
    """[N, V] and [N] -> the losses, [N], in float32; 0 where the label is `ignore`.

    With `with_grad` the logits are overwritten by their gradient: 0 in ignored rows and in columns from `size` on,
    which are padding. A label outside the vocabulary gives NaN: a kernel cannot raise.
    """
    assert logits.is_contiguous()
    losses = torch.empty(labels.shape, dtype=torch.float32, device=logits.device)
    if len(labels):
        options = {
            "WITH_GRAD": with_grad,
            "SMOOTHING": smoothing > 0,
            "LANES": LANES,
            "GROUP": GROUP,
            "num_warps": WARPS,
        }
        sizes = (logits.size(1), size, ignore, 1 - smoothing, smoothing / size)
        _cross_entropy[(len(labels),)](logits, labels.contiguous(), losses, *sizes, **options)
    return losses


@jit(varying=("size", "ignore"))
def _cross_entropy(
    logits,
    labels,
    losses,
    width,
    size,
    ignore,
    confidence,
    smooth,
    WITH_GRAD: tl.constexpr,
    SMOOTHING: tl.constexpr,
    LANES: tl.constexpr,
    GROUP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # rows × width goes beyond 32 bits
    start = logits + row * width
    label = tl.load(labels + row)
    columns = tl.arange(0, LANES)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    if label == ignore:
        tl.store(losses + row, 0.0)
        if WITH_GRAD:
            zeros = tl.zeros([LANES, GROUP], tl.float32).to(logits.dtype.element_ty)
            for first in range(0, width, LANES * GROUP):
                tl.store(start + first + columns, zeros, mask=first + columns < width)
        return
    # Read before logits are overwritten. NaN for labels out of range, and so is the loss.
    label_logit = tl.load(start + label, mask=(label >= 0) & (label < size), other=float("nan")).to(tl.float32)
    label = label.to(tl.int32)

    # Each thread has its own maximum and sum, so that threads synchronize once a row, not once a block.
    maxima = tl.full([LANES], -3e38, tl.float32)  # finite: −inf − −inf is NaN
    sums = tl.zeros([LANES], tl.float32)
    logit_sums = tl.zeros([LANES], tl.float32)
    for first in range(0, width, LANES * GROUP):
        column = first + columns
        x = tl.load(start + column, mask=column < width, other=float("-inf")).to(tl.float32)
        x = tl.where(column < size, x, float("-inf"))
        new_maxima = tl.maximum(maxima, tl.max(x, 1))
        sums = sums * tl.exp(maxima - new_maxima) + tl.sum(tl.exp(x - new_maxima[:, None]), 1)
        maxima = new_maxima
        if SMOOTHING:
            logit_sums += tl.sum(tl.where(column < size, x, 0.0), 1)
    maximum = tl.max(maxima, 0)
    log_sum_exp = maximum + tl.log(tl.sum(sums * tl.exp(maxima - maximum), 0))  # log Σ e^x
    loss = confidence * (log_sum_exp - label_logit)
    if SMOOTHING:
        loss += smooth * (size * log_sum_exp - tl.sum(logit_sums, 0))
    tl.store(losses + row, loss)

    if WITH_GRAD:
        for first in range(0, width, LANES * GROUP):
            column = first + columns
            x = tl.load(start + column, mask=column < width, other=float("-inf")).to(tl.float32)
            grad = tl.exp(x - log_sum_exp) - tl.where(column == label, confidence, 0.0)
            grad = tl.where(column < size, grad - smooth, 0.0)
            tl.store(start + column, grad.to(logits.dtype.element_ty), mask=column < width)
