"""Recurrent cells: one step of a few lines each. `recurrent.py` gives any of them depth, directions and masking.

A cell's state is a tuple of tensors [R, dim], the first of them h. Its parameters are W [gates·dim, input], U
[gates·dim, dim] and one trainable bias per gate; torch's fused kernels want a second bias, which is always zero here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqloom.errors import SeqloomError, known

CellState = tuple[Tensor, ...]


class Cell(nn.Module):
    """What every cell has: the products with W and U. A new cell says `gates`, `names` and `step`."""

    gates: int = 1
    parts: int = 1  # tensors in the state: h, or h and c
    names: tuple[str, ...] = ()  # what `step` reports, in order
    zero: Tensor

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.input_dim, self.dim = input_dim, dim
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(self.gates * dim, input_dim).uniform_(-bound, bound))
        self.recurrent = nn.Parameter(torch.empty(self.gates * dim, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(self.gates * dim))
        self.register_buffer("zero", torch.zeros(self.gates * dim), persistent=False)

    @property
    def joint(self) -> Tensor:
        """The same parameters as the textbook draws them: [h; x] times one matrix [dim + input, gates·dim]."""
        return torch.cat([self.recurrent, self.weight], 1).mT

    def start(self, rows: int, like: Tensor) -> CellState:
        return tuple(like.new_zeros(rows, self.dim) for _ in range(self.parts))

    def input(self, x: Tensor) -> Tensor:
        """W x + b for all steps at once, [..., input] -> [..., gates·dim]: no loop over time is needed for this."""
        return F.linear(x, self.weight, self.bias)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        """One step from `input(x_t)` [R, gates·dim]: the new state, and the activations named in `names`."""
        raise NotImplementedError

    def act(self, gates: Tensor, state: CellState) -> CellState | None:
        """The new state from gates that hold U h already; None for a cell whose gates are no such sum."""
        return None

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        """All steps by torch's kernel, [R, T, input] -> [R, T, dim]; None if it has none for this cell.

        The kernel is told that it trains whenever gradients are on: cuDNN keeps what they need only then.
        """
        return None

    def hold(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor] | None:
        """Inputs and a W by which the state rests where `real` [R, T] is False; None if h alone is the state."""
        return None

    def _weights(self, weight: Tensor | None = None) -> list[Tensor]:
        weights = [self.weight if weight is None else weight, self.recurrent, self.bias, self.zero]
        if not self.weight.is_cuda:
            return weights
        # cuDNN wants one contiguous chunk; else it copies anyway and warns.
        chunk = torch.cat([w.flatten() for w in weights])
        return [part.view_as(w) for part, w in zip(chunk.split([w.numel() for w in weights]), weights, strict=True)]


class RnnCell(Cell):
    """h' = tanh(W x + U h + b) (Elman 1990)."""

    gates = 1
    names = ("state",)

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = torch.addmm(gates, state[0], self.recurrent.mT).tanh()
        return (h,), (h,)

    def act(self, gates: Tensor, state: CellState) -> CellState:
        return (gates.tanh(),)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        y, h = torch.rnn_tanh(
            x, state[0][None].contiguous(), self._weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
        return y, (h[0],)


class GruCell(Cell):
    """R = σ(W_r x + U_r h + b_r), Z = σ(W_z x + U_z h + b_z), h' = Z⊙h + (1−Z)⊙H̃ (Cho et al. 2014, section 2.3).

    `reset="before"`: H̃ = tanh(W x + (R⊙h) U + b), as the paper and the textbook have it; runs step by step.
    `reset="after"`: H̃ = tanh(W x + b + R⊙(h U)), the form of torch's fused kernel.
    """

    gates = 3
    names = ("reset", "update", "candidate", "state")

    def __init__(self, input_dim: int, dim: int, reset: str = "after") -> None:
        super().__init__(input_dim, dim)
        self.reset = known(reset, ("before", "after"), "reset")

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, d = state[0], self.dim
        if self.reset == "after":
            inner = F.linear(h, self.recurrent)
            r, z = torch.sigmoid(gates[:, : 2 * d] + inner[:, : 2 * d]).chunk(2, -1)
            candidate = torch.tanh(gates[:, 2 * d :] + r * inner[:, 2 * d :])
        else:
            r, z = torch.sigmoid(gates[:, : 2 * d] + F.linear(h, self.recurrent[: 2 * d])).chunk(2, -1)
            candidate = torch.tanh(gates[:, 2 * d :] + F.linear(r * h, self.recurrent[2 * d :]))
        h = candidate + z * (h - candidate)  # Z⊙h + (1−Z)⊙H̃ with one product less
        return (h,), (r, z, candidate, h)

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if self.reset == "before":
            return None
        y, h = torch.gru(
            x, state[0][None].contiguous(), self._weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
        )
        return y, (h[0],)


class LstmCell(Cell):
    """i, f, o = σ(…), g = tanh(W_g x + U_g h + b_g), c' = f⊙c + i⊙g, h' = o⊙tanh(c')
    (Hochreiter & Schmidhuber 1997; with the forget gate of Gers et al. 2000).

    `forget` is the bias the forget gate starts with: above zero, the cell starts by remembering
    (Jozefowicz et al. 2015, section 3.1).
    """

    gates = 4
    parts = 2
    names = ("input", "forget", "candidate", "output", "cell", "state")

    def __init__(self, input_dim: int, dim: int, forget: float = 1.0) -> None:
        super().__init__(input_dim, dim)
        with torch.no_grad():
            self.bias[dim : 2 * dim] = forget

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state
        if gates.is_cuda and gates.dtype.itemsize < 4:  # one kernel for all that is pointwise, in full precision
            inner = F.linear(h, self.recurrent).float()
            h, c, kept = torch.ops.aten._thnn_fused_lstm_cell(gates.float(), inner, c.float())
            return (h, c), (*kept.chunk(4, -1), c, h)
        gates = torch.addmm(gates, h, self.recurrent.mT)
        # One sigmoid over all four is faster than three over parts, though g's share of it is not used; in place, since
        # on many rows fresh memory costs as much as the arithmetic.
        g = gates.chunk(4, -1)[2].tanh()
        i, f, _, o = gates.sigmoid_().chunk(4, -1)
        c = torch.addcmul(i * g, f, c)
        h = o * c.tanh()
        return (h, c), (i, f, g, o, c, h)

    def act(self, gates: Tensor, state: CellState) -> CellState:
        return _Lstm.apply(gates, state[1])

    def fused(self, x: Tensor, state: CellState, weight: Tensor | None = None) -> tuple[Tensor, CellState]:
        h, c = (part[None].contiguous() for part in state)
        y, h, c = torch.lstm(x, (h, c), self._weights(weight), True, 1, 0.0, torch.is_grad_enabled(), False, True)
        return y, (h[0], c[0])

    def hold(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The kernel gives c after the last step only. One more input feature, on at padded places, shuts the input
        gate and opens the forget gate there, so that c rests from a row's last real step on. Eight columns, of which
        one is used, keep the products aligned."""
        flag = F.pad((~real).to(x.dtype)[:, :, None], (0, 7))
        column = x.new_zeros(4 * self.dim, 8)
        column[: self.dim, 0], column[self.dim : 2 * self.dim, 0] = -1e4, 1e4
        return torch.cat([x, flag], -1), torch.cat([self.weight, column], 1)


class _Lstm(torch.autograd.Function):
    """All that is pointwise in an LSTM: gates [R, 4·dim] and c -> h', c'. The way back fills one matrix, where torch's
    own would make one for each gate and join them."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        g = gates.chunk(4, -1)[2].tanh()
        open = gates.sigmoid()
        i, f, _, o = open.chunk(4, -1)
        c, before = torch.addcmul(i * g, f, c), c
        inner = c.tanh()
        ctx.save_for_backward(open, g, before, inner)
        return o * inner, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        open, g, before, inner = ctx.saved_tensors
        by_h, by_c = slopes
        i, f, _, o = open.chunk(4, -1)
        by_c = by_c + torch.ops.aten.tanh_backward(by_h * o, inner)
        by_gates = torch.empty_like(open)
        by_i, by_f, by_g, by_o = by_gates.chunk(4, -1)
        sigmoid, tanh = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
        sigmoid(by_c * g, i, grad_input=by_i)
        sigmoid(by_c * before, f, grad_input=by_f)
        tanh(by_c * i, g, grad_input=by_g)
        sigmoid(by_h * inner, o, grad_input=by_o)
        return by_gates, by_c * f


CELLS = {"rnn": RnnCell, "gru": GruCell, "lstm": LstmCell}


def as_dims(dim: int | list[int], layers: int) -> list[int]:
    """A width per layer; one number stands for all of them."""
    dims = [dim] * layers if isinstance(dim, int) else list(dim)
    if len(dims) != layers:
        raise SeqloomError(f"{layers} layers need {layers} widths, here {len(dims)}: {dims}")
    return dims
