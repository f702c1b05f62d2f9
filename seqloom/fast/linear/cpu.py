"""Linear layers by oneDNN, on a CPU in float32: a tenth faster than the BLAS that torch calls with many rows, and more
with few rows and weights packed beforehand."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from seqloom import hardware
from seqloom.acceleration import twin_of
from seqloom.parts.layers.linear import linear

MIN_ROWS = 16  # with fewer, oneDNN takes longer to reorder the weights than to multiply by them
_ONEDNN = torch.backends.mkldnn.is_available()
_BF16 = hardware._BF16


def defer_bias_grad(layer: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """W x + b, and b, whose gradient is left to the next operation: the sum over rows of the gradient of W x + b, which
    that operation has in registers. None: the bias needs no gradient, or has it from here."""
    if layer.bias is None or not layer.bias.requires_grad:
        return layer(x), None
    return linear(x, layer.weight, layer.bias.detach()), layer.bias


def _linear_supported(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return supported(x, weight) and x.numel() >= MIN_ROWS * weight.size(1)


@twin_of(linear, _linear_supported)
def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return (_OnednnLinear.apply if torch.is_grad_enabled() else _onednn_linear)(x, weight, bias)


def linear_relu(x: Tensor, linear: nn.Linear) -> Tensor:
    """max(0, W x + b) without gradients, in one kernel where oneDNN is supported."""
    if not supported(x, linear.weight) or x.numel() < MIN_ROWS * linear.in_features:
        return F.linear(x, linear.weight, linear.bias).relu_()
    return torch.ops.mkldnn._linear_pointwise(x, linear.weight, linear.bias, "relu", [], "")


def supported(x: Tensor, weight: Tensor) -> bool:
    """Plain contiguous matrices in float32: for a slice of columns oneDNN has a loop, not a kernel. Not under
    compilers, which have their own matmul, nor under dispatch modes, such as a counter of FLOPs, which know torch's
    operators."""
    plain = type(weight) in (Tensor, nn.Parameter) and x.dtype == weight.dtype == torch.float32
    plain = plain and weight.is_contiguous()
    available = _ONEDNN and plain and x.device.type == "cpu" and torch.backends.mkldnn.enabled
    return available and not (
        torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()
    )


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def linear_no_grad(x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
    """residual + W x + b without gradients, for `supported` weights in float32 or weights in bf16."""
    if not (_BF16 if weight.dtype == torch.bfloat16 else _ONEDNN):
        return F.linear(x, weight, bias) if residual is None else residual + F.linear(x, weight, bias)
    if residual is None:
        return _onednn_linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise.binary(x, residual, weight, bias, "add")


class _OnednnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn_linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight = ctx.saved_tensors
        grad_output = grad_outputs[0].reshape(-1, weight.size(0))
        grad_x = _onednn_linear(grad_output, weight.mT, None).view(x.shape) if ctx.needs_input_grad[0] else None
        grad_weight = _grad_weight(grad_output, x.reshape(-1, weight.size(1))) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad_output.sum(0) if ctx.needs_input_grad[2] else None


def _grad_weight(grad_output: Tensor, x: Tensor) -> Tensor:
    """grad_outputᵀ x. Torch's matmul is faster with the longer side in its columns."""
    if grad_output.size(1) >= x.size(1):
        return grad_output.mT @ x
    return (x.mT @ grad_output).mT


class StepwiseLinear:
    """W x step by step. The gradient of W is one matmul over all steps instead of a sum of one matmul a step."""

    def __init__(self, weight: Tensor) -> None:
        weight = weight.contiguous() if torch.is_grad_enabled() else weight
        self.pending: list[tuple[Tensor, Tensor]] = []  # in backward: (grad_output, x) of the steps
        self.deferred = supported(weight, weight) and torch.is_grad_enabled()
        self.weight = _SharedWeight.apply(weight, self.pending) if self.deferred else weight

    def __call__(self, x: Tensor) -> Tensor:
        return _StepLinear.apply(x, self.weight, self.pending) if self.deferred else F.linear(x, self.weight)


class _SharedWeight(torch.autograd.Function):
    """The weights themselves; in backward it runs after all steps and makes the gradient of what they left."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pending: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.pending = pending
        ctx.set_materialize_grads(False)  # steps return no gradient of the weights
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        if not ctx.pending:
            return None, None
        grad_output, x = (torch.cat(parts) for parts in zip(*ctx.pending, strict=True))
        ctx.pending.clear()
        return _grad_weight(grad_output, x), None


class _StepLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pending: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.pending = pending
        ctx.save_for_backward(x, weight)
        return _onednn_linear(x, weight, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.pending.append((grad_outputs[0], x))
        return _onednn_linear(grad_outputs[0], weight.mT, None), None, None


class PackedLinear:
    """W x + b with W packed in oneDNN's own layout. ReLU and a residual sum are fused into the kernel."""

    def __init__(self, packed: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = packed, bias

    def __call__(self, x: Tensor) -> Tensor:
        return _onednn_linear(x, self.weight, self.bias)

    def relu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "relu", [], "")

    def with_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + W x + b"""
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


class PlainLinear:
    """The same by torch's matmul."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.matrix, self.bias = weight.mT, bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.matrix if self.bias is None else torch.addmm(self.bias, x, self.matrix)

    def relu(self, x: Tensor) -> Tensor:
        return self(x).relu_()

    def with_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + self(x)


def prepare_linear(linear: nn.Linear, rows: int) -> PackedLinear | PlainLinear:
    """For many calls with about `rows` rows each, without gradients, while the weights do not change. One row is not
    packed: it is bound by reading the weights, in any layout."""
    return prepare_weight(linear, "weight", linear.weight, linear.bias, rows)


def prepare_weight(
    owner: nn.Module, name: str, weight: Tensor, bias: Tensor | None, rows: int
) -> PackedLinear | PlainLinear:
    """The same for the matrix `name` of `owner`."""
    packing = rows > 1 and supported(weight, weight)
    return PackedLinear(_pack(owner, name, weight.detach()), bias) if packing else PlainLinear(weight, bias)


# Packing takes as long as ten steps of decoding, so packed weights are cached beside a copy of their originals.
_packed_weights: WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, Tensor]]] = WeakKeyDictionary()
_ROWS_HINT = 64  # a hint to oneDNN, the same for all, so that the layout depends on the weights alone


def _pack(owner: nn.Module, name: str, weight: Tensor) -> Tensor:
    """From the cache if the weights are the same bit for bit, an eighth of the work of packing. Neither the address nor
    torch's version counter shows every change: fused optimizers do not raise the counter."""
    bits, entries = weight.view(torch.int32), _packed_weights.setdefault(owner, {})
    entry = entries.get(name)
    if entry is None or entry[0].shape != bits.shape or not torch.equal(entry[0], bits):
        entry = entries[name] = bits.clone(), torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
    return entry[1]
