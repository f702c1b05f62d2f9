"""An LSTM that is fed what it said last, over all steps, with its slopes written out: the twin of the loop in
`AttentiveDecoder`, for training on a CPU. One product a step takes in the token, h̃ and h; what a slope by weights or by
what was read sums over steps is one product over all of them. By autocast products are in bfloat16, and only those:
gates are opened, and c is kept, in full precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fast.linear.cpu import fits, times
from seqloom.fast.lstm.pointwise import Kept, opened, slopes, tanh

HALF = torch.bfloat16


class Weights(NamedTuple):
    weight: Tensor  # [4·dim, input + dim], of the token and of h̃
    recurrent: Tensor  # [4·dim, dim]
    bias: Tensor
    join: Tensor  # [dim, dim], the share of `combine` that h has


class Begun(NamedTuple):
    """Where the first step stands, each [R, dim]."""

    h: Tensor
    c: Tensor
    said: Tensor  # h̃


def able(x: Tensor, weights: Weights) -> bool:
    """Whether these steps can be taken this way."""
    return torch.is_grad_enabled() and (_halves(x) or fits(x, weights.weight))


def _halves(x: Tensor) -> bool:
    asked = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == HALF
    return asked and x.dtype in (torch.float32, HALF) and not torch.compiler.is_compiling()


def fed_steps(
    x: Tensor, begun: Begun, memory: tuple[Tensor, Tensor], keep: Tensor | None, weights: Weights
) -> tuple[Tensor, Begun]:
    """x [R, T, input], keys and values [R, S, dim], `keep` [R, 1, S] -> h̃ of all steps [R, T, dim], and where the last
    one stands: h_t = LSTM([x_t; h̃_{t−1}], h_{t−1}), h̃_t = tanh(softmax(h_t · k) v + W h_t)."""
    dtype = HALF if _halves(x) else x.dtype
    with torch.autocast("cpu", enabled=False):
        keys, values = (part.to(dtype) for part in memory)
        states, *after = _Fed.apply(x, *begun, keys, values, *weights, keep, dtype)
    return states, Begun(*after)


class _Fed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> tuple[Tensor, ...]:
        h, c, said, keys, values, weight, recurrent, bias, join, keep, dtype = given
        (rows, steps, wide), dim = x.shape, h.size(1)
        joint, bias, join = torch.cat([weight, recurrent], 1).to(dtype), bias.to(dtype), join.to(dtype).contiguous()
        entered = x.new_empty(steps + 1, rows, wide + 2 * dim, dtype=dtype)  # what each step takes in: x, h̃ and h
        entered[:-1, :, :wide], entered[0, :, wide:-dim], entered[0, :, -dim:] = x.transpose(0, 1), said, h
        states, found = x.new_empty(2, steps, rows, dim, dtype=dtype).unbind(0)  # h and h̃
        weighed, c, kept = x.new_empty(steps, rows, 1, keys.size(1), dtype=dtype), c.float(), []
        for t in range(steps):
            h, c, step = opened(times(entered[t], joint, bias).float(), c)
            kept += step
            states[t] = h
            _weigh(states[t].unsqueeze(1), keys, keep, weighed[t])
            said = tanh(times(states[t], join, None, torch.bmm(weighed[t], values).squeeze(1)).float())
            found[t] = said
            entered[t + 1, :, wide:-dim], entered[t + 1, :, -dim:] = said, h
        ctx.dtypes = [part.dtype for part in (x, *given[:9])]
        ctx.save_for_backward(entered, states, found, weighed, keys, values, joint, join, *kept)
        return found.transpose(0, 1).contiguous(), h, c, said

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_y: Tensor, by_h: Tensor, by_c: Tensor, by_said: Tensor) -> Any:  # pyright: ignore
        entered, states, found, weighed, keys, values, joint, join, *kept = ctx.saved_tensors
        (steps, rows, dim), wide = states.shape, entered.size(2) - 2 * states.size(2)
        by_x, by_gates = joint.new_empty(rows, steps, wide), joint.new_empty(steps, rows, 4 * dim)
        by_joined, by_scores, by_bias = torch.empty_like(found), torch.empty_like(weighed), torch.zeros(4 * dim)
        whole = torch.empty(rows, 4 * dim) if joint.dtype == HALF else None
        for t in reversed(range(steps)):
            joined, place = by_joined[t], by_gates[t] if whole is None else whole
            torch.ops.aten.tanh_backward.grad_input(by_said + by_y[:, t], found[t], grad_input=joined)
            _unweigh(torch.bmm(joined.unsqueeze(1), values.mT), weighed[t], by_scores[t])
            by_h = by_h + times(joined, join.mT, None, torch.bmm(by_scores[t], keys).squeeze(1))
            by_c = slopes(Kept(*kept[3 * t : 3 * t + 3]), by_h.float(), by_c, place)
            by_bias += place.sum(0)
            if whole is not None:
                by_gates[t] = whole
            by_x[:, t], by_said, by_h = times(by_gates[t], joint.mT).split([wide, dim, dim], 1)
        by_joint = by_gates.flatten(0, 1).mT @ entered[:-1].flatten(0, 1)
        by_weights = (
            by_joint[:, :-dim],
            by_joint[:, -dim:],
            by_bias,
            by_joined.flatten(0, 1).mT @ states.flatten(0, 1),
        )
        by_memory = _over_steps(by_scores, states), _over_steps(weighed, by_joined)
        every = zip((by_x, by_h, by_c, by_said, *by_memory, *by_weights), ctx.dtypes, strict=True)
        return *(slope.to(dtype) for slope, dtype in every), None, None


def _weigh(query: Tensor, keys: Tensor, keep: Tensor | None, place: Tensor) -> None:
    """softmax(q · k) to its place, [R, 1, S]."""
    scores = torch.bmm(query, keys.mT)
    if keep is None:
        torch.softmax(scores, -1, out=place)
    else:
        scores.masked_fill_(~keep, torch.finfo(scores.dtype).min)
        torch.softmax(scores, -1, out=place).mul_(keep)


def _unweigh(by_weights: Tensor, weights: Tensor, place: Tensor) -> None:
    """The slope by the scores to its place."""
    torch.ops.aten._softmax_backward_data.out(by_weights, weights, -1, weights.dtype, grad_input=place)


def _over_steps(weights: Tensor, states: Tensor) -> Tensor:
    """[T, R, 1, S] and [T, R, dim] -> the sum over steps of their products, [R, S, dim]"""
    return torch.bmm(weights.squeeze(2).permute(1, 2, 0), states.transpose(0, 1))
