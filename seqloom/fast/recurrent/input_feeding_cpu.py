"""An LSTM decoder with attention and input feeding over all steps, with an explicit backward, for training on a CPU.
The reference is the loop in `AttentiveDecoder`. Each step has one matmul over [x; h̃; h], and the gradients of weights,
keys and values are one matmul each over all steps. Under autocast only matmuls are in bf16; gates and c are float32."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fast.linear import cpu as linear_cpu
from seqloom.fast.linear.cpu import linear_no_grad
from seqloom.fast.recurrent.pointwise import Saved, fast_tanh, lstm_pointwise, lstm_pointwise_backward

BF16 = torch.bfloat16


class Weights(NamedTuple):
    weight: Tensor  # [4·dim, input + dim], for [x; h̃]
    recurrent: Tensor  # [4·dim, dim]
    bias: Tensor
    join: Tensor  # [dim, dim], the part of `combine` applied to h


class InputFeedingState(NamedTuple):
    """Before the first step or after the last, each [R, dim]."""

    h: Tensor
    c: Tensor
    attentional: Tensor  # h̃


def supported(x: Tensor, weights: Weights) -> bool:
    return torch.is_grad_enabled() and (_bf16_autocast(x) or linear_cpu.supported(x, weights.weight))


def _bf16_autocast(x: Tensor) -> bool:
    autocast = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == BF16
    return autocast and x.dtype in (torch.float32, BF16) and not torch.compiler.is_compiling()


def input_feeding_steps(
    x: Tensor, initial: InputFeedingState, memory: tuple[Tensor, Tensor], keep: Tensor | None, weights: Weights
) -> tuple[Tensor, InputFeedingState]:
    """x [R, T, input], keys and values [R, S, dim], `keep` [R, 1, S] -> h̃ of all steps [R, T, dim], and the last
    state: h_t = LSTM([x_t; h̃_{t−1}], h_{t−1}), h̃_t = tanh(softmax(h_t · k) v + W h_t)."""
    dtype = BF16 if _bf16_autocast(x) else x.dtype
    with torch.autocast("cpu", enabled=False):
        keys, values = (part.to(dtype) for part in memory)
        states, *final = _InputFeeding.apply(x, *initial, keys, values, *weights, keep, dtype)
    return states, InputFeedingState(*final)


class _InputFeeding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        h, c, attentional, keys, values, weight, recurrent, bias, join, keep, dtype = rest
        (rows, steps, input_dim), dim = x.shape, h.size(1)
        joint, bias, join = torch.cat([weight, recurrent], 1).to(dtype), bias.to(dtype), join.to(dtype).contiguous()
        inputs = x.new_empty(steps + 1, rows, input_dim + 2 * dim, dtype=dtype)  # of each step: [x; h̃; h]
        inputs[:-1, :, :input_dim], inputs[0, :, input_dim:-dim], inputs[0, :, -dim:] = (
            x.transpose(0, 1),
            attentional,
            h,
        )
        states, outputs = x.new_empty(2, steps, rows, dim, dtype=dtype).unbind(0)  # h and h̃
        weights, c, saved = x.new_empty(steps, rows, 1, keys.size(1), dtype=dtype), c.float(), []
        for t in range(steps):
            h, c, saved_step = lstm_pointwise(linear_no_grad(inputs[t], joint, bias).float(), c)
            saved += saved_step
            states[t] = h
            _attention_weights(states[t].unsqueeze(1), keys, keep, weights[t])
            attentional = fast_tanh(
                linear_no_grad(states[t], join, None, torch.bmm(weights[t], values).squeeze(1)).float()
            )
            outputs[t] = attentional
            inputs[t + 1, :, input_dim:-dim], inputs[t + 1, :, -dim:] = attentional, h
        ctx.dtypes = [part.dtype for part in (x, *rest[:9])]
        ctx.save_for_backward(inputs, states, outputs, weights, keys, values, joint, join, *saved)
        return outputs.transpose(0, 1).contiguous(), h, c, attentional

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_h: Tensor, grad_c: Tensor, grad_attentional: Tensor) -> Any:  # pyright: ignore
        inputs, states, outputs, weights, keys, values, joint, join, *saved = ctx.saved_tensors
        (steps, rows, dim), input_dim = states.shape, inputs.size(2) - 2 * states.size(2)
        grad_x, grad_gates = joint.new_empty(rows, steps, input_dim), joint.new_empty(steps, rows, 4 * dim)
        grad_combined, grad_scores, grad_bias = (
            torch.empty_like(outputs),
            torch.empty_like(weights),
            torch.zeros(4 * dim),
        )
        grad_gates32 = torch.empty(rows, 4 * dim) if joint.dtype == BF16 else None
        for t in reversed(range(steps)):
            grad_out, grad_step = grad_combined[t], grad_gates[t] if grad_gates32 is None else grad_gates32
            torch.ops.aten.tanh_backward.grad_input(grad_attentional + grad_y[:, t], outputs[t], grad_input=grad_out)
            _softmax_backward(torch.bmm(grad_out.unsqueeze(1), values.mT), weights[t], grad_scores[t])
            grad_h = grad_h + linear_no_grad(grad_out, join.mT, None, torch.bmm(grad_scores[t], keys).squeeze(1))
            grad_c = lstm_pointwise_backward(Saved(*saved[3 * t : 3 * t + 3]), grad_h.float(), grad_c, grad_step)
            grad_bias += grad_step.sum(0)
            if grad_gates32 is not None:
                grad_gates[t] = grad_gates32
            grad_x[:, t], grad_attentional, grad_h = linear_no_grad(grad_gates[t], joint.mT).split(
                [input_dim, dim, dim], 1
            )
        grad_joint = grad_gates.flatten(0, 1).mT @ inputs[:-1].flatten(0, 1)
        grad_weights = (
            grad_joint[:, :-dim],
            grad_joint[:, -dim:],
            grad_bias,
            grad_combined.flatten(0, 1).mT @ states.flatten(0, 1),
        )
        grad_memory = _sum_over_steps(grad_scores, states), _sum_over_steps(weights, grad_combined)
        grads = zip((grad_x, grad_h, grad_c, grad_attentional, *grad_memory, *grad_weights), ctx.dtypes, strict=True)
        return *(grad.to(dtype) for grad, dtype in grads), None, None


def _attention_weights(query: Tensor, keys: Tensor, keep: Tensor | None, out: Tensor) -> None:
    """Writes softmax(q · k) to `out` [R, 1, S]."""
    scores = torch.bmm(query, keys.mT)
    if keep is None:
        torch.softmax(scores, -1, out=out)
    else:
        scores.masked_fill_(~keep, torch.finfo(scores.dtype).min)
        torch.softmax(scores, -1, out=out).mul_(keep)


def _softmax_backward(grad_weights: Tensor, weights: Tensor, out: Tensor) -> None:
    """Writes the gradient of the scores to `out`."""
    torch.ops.aten._softmax_backward_data.out(grad_weights, weights, -1, weights.dtype, grad_input=out)


def _sum_over_steps(weights: Tensor, states: Tensor) -> Tensor:
    """Σ_t weights_tᵀ states_t: [T, R, 1, S] and [T, R, dim] -> [R, S, dim]."""
    return torch.bmm(weights.squeeze(2).permute(1, 2, 0), states.transpose(0, 1))
