"""The loss of a guess among many tokens, without a matrix of all logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.fast.triton_common import runtime

CELLS = 1 << 28  # logits at a time
ALIGNED = 64  # in half precision, products of other widths run at a fraction of the speed
WIDE = 4096  # tokens from which our kernel, which reads logits twice, is worth its while on a GPU
NOWHERE = -100  # no label: torch's own number


def entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0, ignore: int = NOWHERE) -> Tensor:
    """Σ −log softmax(W h + b) at the labels: [N, dim] and [N] -> [].

    Rows whose label is `ignore` count for nothing. Smoothed, a share of each label's mass is spread over all tokens
    (Szegedy et al. 2016, section 7). Beyond a number of logits the sum is made piece by piece, each piece's gradient
    together with its loss, so that logits are held for one piece only and read a few times, not ten.
    """
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    ours = runtime.usable(states) and dtype.itemsize < 4 and output.out_features >= WIDE
    if labels.size(0) * output.out_features <= CELLS and not (ours and len(labels)):
        return of_logits(output(states), labels, smoothing, ignore)
    cells = 2 * CELLS if runtime.usable(states) else CELLS  # our kernel needs no second piece of memory beside a piece
    return _Pieces.apply(states, output.weight, output.bias, labels, _How(smoothing, ignore, dtype, cells))


def of_logits(logits: Tensor, labels: Tensor, smoothing: float = 0.0, ignore: int = NOWHERE) -> Tensor:
    """The same of logits that are there, [N, V]."""
    logits = logits.float() if logits.dtype.itemsize < 4 else logits
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing, ignore_index=ignore)


class _How(NamedTuple):
    smoothing: float
    ignore: int
    dtype: torch.dtype  # of the products; sums are in float32 at least
    cells: int


class _Pieces(torch.autograd.Function):
    """Gradients are found on the way forward, for a loss whose own gradient is 1, and scaled on the way back."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: _How) -> Tensor:
        exact = torch.promote_types(how.dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=states.device)
        matrix, offset = _widened(weight, bias, how.dtype)
        wanted = ctx.needs_input_grad
        by_state = torch.empty_like(states) if wanted[0] else None
        by_weight = torch.zeros(matrix.shape, dtype=exact, device=states.device) if wanted[1] else None
        by_bias = torch.zeros(matrix.size(0), dtype=exact, device=states.device) if wanted[2] else None
        size = _rows(labels.size(0), how.cells // matrix.size(0))
        for first in range(0, labels.size(0), size):
            some = slice(first, first + size)
            h, real = states[some].to(how.dtype), (labels[some] != how.ignore).to(how.dtype)[:, None]
            logits = h @ matrix.mT if offset is None else torch.addmm(offset, h, matrix.mT)
            nats, slope, zeros = _guessed(logits, labels[some], weight.size(0), how, any(wanted[:3]))
            total += nats
            if by_state is not None:
                by_state[some] = slope @ matrix if zeros else (slope @ matrix) * real
            if by_weight is not None:
                _add_product(by_weight, slope.mT, h if zeros else h * real)
            if by_bias is not None:
                by_bias += (real.mT @ slope)[0]
        size = weight.size(0)
        found = (by_state, None if by_weight is None else by_weight[:size], None if by_bias is None else by_bias[:size])
        ctx.dtypes = (states.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.save_for_backward(*found)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        found = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return *(None if part is None else (part * slopes[0]).to(dtype) for part, dtype in found), None, None


def _guessed(logits: Tensor, labels: Tensor, size: int, how: _How, slopes: bool) -> tuple[Tensor, Tensor, bool]:
    """The loss of one piece, its gradient by the logits, which takes their place, and whether that is zero in rows
    without a label: to make it so costs the plain form more than to leave those rows out of what is made of it."""
    if runtime.usable(logits) and logits.dtype.itemsize <= 4 and not torch.compiler.is_compiling():
        from seqloom.fast.loss import triton_kernels

        return triton_kernels.cross_entropy(logits, labels, size, how.smoothing, how.ignore, slopes).sum(), logits, True
    return *guessed(logits, labels, size, how, slopes), False


def guessed(logits: Tensor, labels: Tensor, size: int, how: _How, slopes: bool) -> tuple[Tensor, Tensor]:
    """The loss of one piece, and its gradient by the logits, which takes their place, by torch's own operations."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    real = labels != how.ignore
    at = labels.masked_fill(~real, 0)[:, None]
    logs = logits.log_softmax(-1, dtype=exact)
    right, spread = logs.gather(1, at)[:, 0], how.smoothing / size
    nats = (how.smoothing - 1) * right
    if spread:
        nats = nats - spread * logs[:, :size].sum(-1)
    nats = nats.masked_fill(~real, 0.0).sum()
    if not slopes:
        return nats, logits
    slope = torch.exp(logs, out=logits)
    if spread:
        slope[:, :size] -= spread
    # The label's own is made in full precision: near certainty it is a small difference of numbers near 1.
    slope.scatter_(1, at, (right.exp() - (1 - how.smoothing) - spread).to(slope.dtype)[:, None])
    return nats, slope


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b"""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif runtime.MIXED_ADDMM and a.is_cuda and not torch.compiler.is_compiling():
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)  # pyright: ignore
    else:
        total += a @ b


def _widened(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """W and b in `dtype`; in half precision with further rows up to a round number, for tokens of probability 0."""
    more = -weight.size(0) % ALIGNED if dtype.itemsize < 4 else 0
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    if not more:
        return weight, bias
    bias = weight.new_zeros(weight.size(0)) if bias is None else bias
    return F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=float("-inf"))


def _rows(total: int, most: int) -> int:
    """Rows of a piece: nearly equal pieces, of a round number of rows where there are many."""
    pieces = -(-total // max(most, 1))
    rows = -(-total // pieces)
    return rows if rows < 128 else -(-rows // 128) * 128
