"""The loss of guesses and its gradient by the logits in one kernel: a row of logits is read from memory once, again
while it is near, and written over. The plain twin is `loss_and_gradient` in `parts/layers/cross_entropy.py`."""

# pyright: reportInvalidTypeForm=false, reportOptionalMemberAccess=false
from __future__ import annotations

import torch
from torch import Tensor

from seqloom.fast.triton_common.runtime import jit

try:
    import triton.language as tl  # pyright: ignore[reportMissingImports]
except ImportError:
    tl = None

EACH = 8  # neighbours that one thread reads at once: 16 bytes in half precision
LANES = 512  # such groups at a time
WARPS = 8


def guessed(logits: Tensor, labels: Tensor, size: int, smoothing: float, ignore: int, slopes: bool) -> Tensor:
    """[N, V] and [N] -> the losses, [N], in float32; 0 where the label is `ignore`.

    With `slopes` their gradient takes the place of the logits: 0 in ignored rows, and in columns from `size` on, which
    are no tokens. A label that is no token's number gives NaN: a kernel cannot raise.
    """
    assert logits.is_contiguous()
    nats = torch.empty(labels.shape, dtype=torch.float32, device=logits.device)
    if len(labels):
        how = {"SLOPES": slopes, "SMOOTHED": smoothing > 0, "LANES": LANES, "EACH": EACH, "num_warps": WARPS}
        numbers = (logits.size(1), size, ignore, 1 - smoothing, smoothing / size)
        _guessed[(len(labels),)](logits, labels.contiguous(), nats, *numbers, **how)
    return nats


@jit(varying=("size", "ignore"))
def _guessed(
    logits,
    labels,
    nats,
    width,
    size,
    ignore,
    sure,
    spread,
    SLOPES: tl.constexpr,
    SMOOTHED: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # rows × width goes beyond 32 bits
    start = logits + row * width
    label = tl.load(labels + row)
    columns = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    if label == ignore:
        tl.store(nats + row, 0.0)
        if SLOPES:
            nothing = tl.zeros([LANES, EACH], tl.float32).to(logits.dtype.element_ty)
            for first in range(0, width, LANES * EACH):
                tl.store(start + first + columns, nothing, mask=first + columns < width)
        return
    # Before anything is written. Out of range it is NaN, and so is the loss.
    right = tl.load(start + label, mask=(label >= 0) & (label < size), other=float("nan")).to(tl.float32)
    label = label.to(tl.int32)

    # Each thread keeps a maximum and a sum of its own, so that threads meet once a row, not once a block.
    most = tl.full([LANES], -3e38, tl.float32)  # finite: −inf less −inf is no number
    total = tl.zeros([LANES], tl.float32)
    plain = tl.zeros([LANES], tl.float32)
    for first in range(0, width, LANES * EACH):
        at = first + columns
        x = tl.load(start + at, mask=at < width, other=float("-inf")).to(tl.float32)
        x = tl.where(at < size, x, float("-inf"))
        higher = tl.maximum(most, tl.max(x, 1))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        most = higher
        if SMOOTHED:
            plain += tl.sum(tl.where(at < size, x, 0.0), 1)
    top = tl.max(most, 0)
    whole = top + tl.log(tl.sum(total * tl.exp(most - top), 0))  # log Σ e^x
    loss = sure * (whole - right)
    if SMOOTHED:
        loss += spread * (size * whole - tl.sum(plain, 0))
    tl.store(nats + row, loss)

    if SLOPES:
        for first in range(0, width, LANES * EACH):
            at = first + columns
            x = tl.load(start + at, mask=at < width, other=float("-inf")).to(tl.float32)
            slope = tl.exp(x - whole) - tl.where(at == label, sure, 0.0)
            slope = tl.where(at < size, slope - spread, 0.0)
            tl.store(start + at, slope.to(logits.dtype.element_ty), mask=at < width)
