"""An LSTM's steps in half precision on a GPU: a product and one kernel of ours each, forward and back, and what a slope
by weights sums over steps is one product over all of them. Recorded, as training is, that takes a fraction of the time
of torch's kernel, which has no bfloat16 (`benchmarks/gpu/kernel_speed.py`). Gates and c are float32.
The plain twin is the loop of `LstmCell`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fast.triton_common import runtime

ALIGNED = 8  # halves in 16 bytes: products of other widths are slow, and torch's kernel is not


def fits(x: Tensor, dim: int) -> bool:
    """Whether steps of x [R, T, input] are taken this way: in training by autocast, of several steps."""
    if not runtime.usable(x) or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    asked = torch.is_autocast_enabled(x.device.type)
    return asked and x.size(1) > 1 and x.numel() > 0 and dim % ALIGNED == 0 and x.size(2) % ALIGNED == 0


def lstm(x: Tensor, state: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """x [R, T, input], h and c before the first step [R, dim], and W, U and b -> h in half precision and c in full
    after every step, [R, T, dim]."""
    dtype = torch.get_autocast_dtype(x.device.type)
    h, c = _Steps.apply(x.transpose(0, 1), *state, *weights, dtype)  # pyright: ignore
    return h.transpose(0, 1), c.transpose(0, 1)


class _Steps(torch.autograd.Function):
    """Steps first: what one step reads and writes lies in one piece."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        from seqloom.fast.lstm import triton_kernels as lstm

        first, c, weight, recurrent, bias, dtype = given
        (steps, rows, _), dim = x.shape, first.size(1)
        read, weight, recurrent = x.to(dtype).contiguous().flatten(0, 1), weight.to(dtype), recurrent.to(dtype)
        gates = torch.addmm(bias.to(dtype), read, weight.mT).view(steps, rows, 4 * dim)
        states = gates.new_empty(steps + 1, rows, dim)
        cells = gates.new_empty(steps + 1, rows, dim, dtype=torch.float32)
        states[0], cells[0] = first, c
        for t in range(steps):
            gates[t].addmm_(states[t], recurrent.mT)
            lstm.forward(gates[t], cells[t], states[t + 1], cells[t + 1])
        ctx.dtypes = [part.dtype for part in (x, *given[:5])]
        ctx.save_for_backward(read, weight, recurrent, gates, states, cells)
        ctx.set_materialize_grads(False)
        return states[1:], cells[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_states: Tensor | None, by_cells: Tensor | None) -> Any:  # pyright: ignore
        from seqloom.fast.lstm import triton_kernels as lstm

        read, weight, recurrent, gates, states, cells = ctx.saved_tensors
        steps, rows, _ = gates.shape
        by_states = torch.zeros_like(states[1:]) if by_states is None else by_states
        if by_states.stride(2) != 1:
            by_states = by_states.contiguous()
        by_gates, by_c = torch.empty_like(gates), torch.zeros_like(cells[0])
        by_next: Any = None
        for t in reversed(range(steps)):
            if by_cells is not None:
                by_c += by_cells[t]
            lstm.backward(by_states[t], by_next, (gates[t], cells[t], cells[t + 1]), (by_gates[t], by_c))
            by_next = by_gates[t] @ recurrent
        flat = by_gates.flatten(0, 1)
        by_x = (flat @ weight).view(steps, rows, -1)
        by_weights = flat.mT @ read, flat.mT @ states[:-1].flatten(0, 1), flat.sum(0, dtype=torch.float32)
        every = zip((by_x, by_next, by_c, *by_weights), ctx.dtypes, strict=True)
        return *(slope.to(dtype) for slope, dtype in every), None
