"""The activation and dropout of a feed-forward network in one kernel on a GPU: dropout(max(0, x)) or dropout(gelu(x)).
No mask is saved, and the backward kernel also sums the gradient of the bias before it. Where our kernel does not run,
dropout(max(0, x)) by torch, without masks.

For torch.compile it is a custom operator, one opaque node of the graph. In eager mode, where a custom operator costs
the host more than the rest of a layer, it is an autograd function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import twin_of
from seqloom.fast.linear.cpu import defer_bias_grad
from seqloom.fast.triton_common import runtime
from seqloom.parts.layers.activations import Gelu, Relu
from seqloom.parts.transformer.feed_forward import FeedForward


def supported(self: FeedForward, x: Tensor) -> bool:
    """In training only: without gradients the kernel gains too little."""
    fits = runtime.usable(x) and torch.is_grad_enabled() and x.dtype.itemsize <= 4
    return fits and isinstance(self.activation, Relu | Gelu)


@twin_of(FeedForward.forward, supported, compiles=True)
def fused_feed_forward(self: FeedForward, x: Tensor) -> Tensor:
    gelu, p = isinstance(self.activation, Gelu), self.dropout if self.training else 0.0
    return self.down(activation_dropout(*defer_bias_grad(self.up, x), p, gelu))


def _relu_dropout_supported(self: FeedForward, x: Tensor) -> bool:
    drops = self.training and self.dropout > 0.0
    return drops and isinstance(self.activation, Relu) and x.device.type != "cpu"


@twin_of(FeedForward.forward, _relu_dropout_supported, compiles=True)
def relu_feed_forward(self: FeedForward, x: Tensor) -> Tensor:
    return self.down(ReluDropout.apply(self.up(x), self.dropout))


def activation_dropout(x: Tensor, bias: Tensor | None, p: float, gelu: bool) -> Tensor:
    """x [..., dim] -> dropout(gelu(x)), or of max(0, x). `bias` [dim] is in x already, but its gradient is made here;
    see `defer_bias_grad`."""
    call = torch.ops.seqloom.activated if torch.compiler.is_compiling() else _ActivationDropout.apply
    return call(x, bias, runtime.seed(x, p), p, gelu)


def reference(x: Tensor, keep: Tensor | None, p: float, gelu: bool) -> Tensor:
    """`activation_dropout` by torch's operators, with a known dropout mask `keep`."""
    y = F.gelu(x) if gelu else x.relu()
    return y if keep is None else y * keep / (1 - p)


def _forward(x: Tensor, bias: Tensor | None, seed: Tensor | None, p: float, gelu: bool) -> Tensor:
    from seqloom.fast.feedforward import triton_kernels

    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        dim, drop = x.size(-1), None if seed is None else (seed, p)
        triton_kernels.forward(x.view(-1, dim), y.view(-1, dim), gelu, drop)
    return y


def _grads(
    grad_output: Tensor, saved: Tensor, seed: Tensor | None, p: float, gelu: bool, sums: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x, and of the bias in float32."""
    from seqloom.fast.feedforward import triton_kernels
    from seqloom.fast.triton_common import column_sums

    dim, saved = saved.size(-1), saved.contiguous()
    grad_x, grad_bias = _empty_grads(saved, sums)
    if not saved.numel():
        return grad_x, grad_bias.zero_()
    matrices = [tensor.view(-1, dim) for tensor in (grad_output.contiguous(), saved, grad_x)]
    bias_sums = saved.new_empty(column_sums.programs(*matrices[0].shape), dim, dtype=torch.float32) if sums else None
    triton_kernels.backward(
        (matrices[0], matrices[1]), (matrices[2], bias_sums), gelu, None if seed is None else (seed, p)
    )
    return grad_x, grad_bias if bias_sums is None else bias_sums.sum(0)


def _empty_grads(saved: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    return saved.new_empty(saved.shape), saved.new_empty(saved.size(-1) if sums else 0, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, seed, ctx.p, ctx.gelu = inputs
    ctx.save_for_backward(x if ctx.gelu else output, seed)
    ctx.bias = None if bias is None else bias.dtype


def _backward(grads: Callable[..., Any], ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
    grad_x, grad_bias = grads(grad_output, *ctx.saved_tensors, ctx.p, ctx.gelu, ctx.bias is not None)
    return grad_x, None if ctx.bias is None else grad_bias.to(ctx.bias), None, None, None


class ReluDropout(torch.autograd.Function):
    """dropout(max(0, x)). The backward pass needs only the output: above zero, x was positive and not dropped. So no
    mask is saved, where torch would save two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y = F.dropout(x.relu(), p)
        ctx.save_for_backward(y)
        ctx.keep_probability = 1.0 - p
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        [y], grad_output = ctx.saved_tensors, grad_outputs[0]
        return grad_output * ((y > 0).to(grad_output.dtype) / ctx.keep_probability), None


class _ActivationDropout(torch.autograd.Function):
    forward, setup_context = staticmethod(_forward), staticmethod(_setup_context)  # pyright: ignore
    backward = staticmethod(partial(_backward, _grads))  # pyright: ignore


_operator = torch.library.custom_op(
    "seqloom::activated",
    _forward,
    mutates_args=(),
    schema="(Tensor x, Tensor? bias, Tensor? seed, float p, bool gelu) -> Tensor",
)
_backward_operator = torch.library.custom_op(
    "seqloom::activated_slopes",
    _grads,
    mutates_args=(),
    schema="(Tensor grad_output, Tensor saved, Tensor? seed, float p, bool gelu, bool sums) -> (Tensor, Tensor)",
)
_operator.register_autograd(partial(_backward, torch.ops.seqloom.activated_slopes), setup_context=_setup_context)
_operator.register_fake(lambda x, *_: x.new_empty(x.shape))
_backward_operator.register_fake(lambda grad_output, saved, *options: _empty_grads(saved, options[-1]))
