"""Products with a matrix of weights. On a CPU in float32 oneDNN's kernels are quicker than the BLAS that torch calls:
by a tenth where rows are many, and by more where few rows meet a matrix that was packed for them beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

Rows = Callable[[Tensor], Tensor]  # [R, in] -> [R, out]
FEW = 16  # rows: for fewer oneDNN takes longer to lay out a matrix than to multiply by it
_HAVE = torch.backends.mkldnn.is_available()
_HALVES = _HAVE and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # older processors have no such products


def halves(device: torch.device) -> bool:
    """Whether bfloat16 is worth it there. A processor without such arithmetic takes five times as long as in float32,
    and oneDNN has no fused RNN for it."""
    return device.type != "cpu" or _HALVES


class Linear(nn.Linear):
    """W x + b, as nn.Linear."""

    def forward(self, input: Tensor) -> Tensor:
        return product(input, self.weight, self.bias)

    def apart(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """W x + b, and b for whoever comes next and makes its slope, the sum over the slope by W x + b, while that is
        at hand: here it is not made. None: nobody wants it."""
        if self.bias is None or not self.bias.requires_grad:
            return self(x), None
        return product(x, self.weight, self.bias.detach()), self.bias


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear: x [..., in], weight [out, in] -> [..., out]."""
    if not fits(x, weight) or x.numel() < FEW * weight.size(1):
        return F.linear(x, weight, bias)
    return (_Product.apply if torch.is_grad_enabled() else _onednn)(x, weight, bias)


def rectified(x: Tensor, linear: nn.Linear) -> Tensor:
    """max(0, W x + b) without gradients; the product's own kernel does it where it can."""
    if not fits(x, linear.weight) or x.numel() < FEW * linear.in_features:
        return F.linear(x, linear.weight, linear.bias).relu_()
    return torch.ops.mkldnn._linear_pointwise(x, linear.weight, linear.bias, "relu", [], "")


def fits(x: Tensor, weight: Tensor) -> bool:
    """Plain matrices in float32, and whole ones: for columns of another oneDNN has no kernel but a loop. Compilers have
    products of their own, and who counts operations knows torch's."""
    plain = type(weight) in (Tensor, nn.Parameter) and x.dtype == weight.dtype == torch.float32
    plain = plain and weight.is_contiguous()
    here = _HAVE and plain and x.device.type == "cpu" and torch.backends.mkldnn.enabled
    return here and not (
        torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()
    )


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
    """onto + W x + b without gradients, for weights that `fits` was asked about or that are in half precision."""
    if not (_HALVES if weight.dtype == torch.bfloat16 else _HAVE):
        return F.linear(x, weight, bias) if onto is None else onto + F.linear(x, weight, bias)
    if onto is None:
        return _onednn(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise.binary(x, onto, weight, bias, "add")


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight = ctx.saved_tensors
        slope = slopes[0].reshape(-1, weight.size(0))
        by_x = _onednn(slope, weight.mT, None).view(x.shape) if ctx.needs_input_grad[0] else None
        by_weight = _by_weight(slope, x.reshape(-1, weight.size(1))) if ctx.needs_input_grad[1] else None
        return by_x, by_weight, slope.sum(0) if ctx.needs_input_grad[2] else None


def _by_weight(slope: Tensor, x: Tensor) -> Tensor:
    """slopeᵀ x. Torch's product is quicker with the longer side in its columns."""
    if slope.size(1) >= x.size(1):
        return slope.mT @ x
    return (x.mT @ slope).mT


class Steps:
    """W x for one step after another. The gradient by W is a single product over all steps, in the place of one a step
    and their sum."""

    def __init__(self, weight: Tensor) -> None:
        weight = weight.contiguous() if torch.is_grad_enabled() else weight
        self.given: list[tuple[Tensor, Tensor]] = []  # on the way back: slopes and what they belong to
        self.delayed = fits(weight, weight) and torch.is_grad_enabled()
        self.weight = _Whole.apply(weight, self.given) if self.delayed else weight

    def __call__(self, x: Tensor) -> Tensor:
        return _Step.apply(x, self.weight, self.given) if self.delayed else F.linear(x, self.weight)


class _Whole(torch.autograd.Function):
    """The matrix itself; on the way back all its steps have been there before."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, given: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.given = given
        ctx.set_materialize_grads(False)  # steps hand on nothing here
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        if not ctx.given:
            return None, None
        slope, x = (torch.cat(parts) for parts in zip(*ctx.given, strict=True))
        ctx.given.clear()
        return _by_weight(slope, x), None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, given: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.given = given
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.given.append((slopes[0], x))
        return _onednn(slopes[0], weight.mT, None), None, None


class Packed:
    """W x + b with W in the order in which oneDNN reads it. `relu` and a sum are done on the way out."""

    def __init__(self, packed: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = packed, bias

    def __call__(self, x: Tensor) -> Tensor:
        return _onednn(x, self.weight, self.bias)

    def relu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "relu", [], "")

    def onto(self, x: Tensor, other: Tensor) -> Tensor:
        """other + W x + b"""
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")


class Bare:
    """The same by torch's own product, with the transpose at hand."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.matrix, self.bias = weight.mT, bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.matrix if self.bias is None else torch.addmm(self.bias, x, self.matrix)

    def relu(self, x: Tensor) -> Tensor:
        return self(x).relu_()

    def onto(self, x: Tensor, other: Tensor) -> Tensor:
        return other + self(x)


def ready(linear: nn.Linear, rows: int) -> Packed | Bare:
    """For many products with about `rows` rows each, without gradients, as long as the weights stay as they are. One
    row is a matter of reading the matrix, in whatever order."""
    return ready_part(linear, "weight", linear.weight, linear.bias, rows)


def ready_part(owner: nn.Module, name: str, weight: Tensor, bias: Tensor | None, rows: int) -> Packed | Bare:
    """The same of a matrix that `owner` has, and by what name."""
    packs = rows > 1 and fits(weight, weight)
    return Packed(_packed(owner, name, weight.detach()), bias) if packs else Bare(weight, bias)


# To pack takes as long as ten steps of decoding: what was packed is kept beside a copy of what it was made of.
_kept: WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, Tensor]]] = WeakKeyDictionary()
_ROWS = 64  # a hint to oneDNN, the same for all, so that what is packed depends on the weights alone


def _packed(owner: nn.Module, name: str, weight: Tensor) -> Tensor:
    """Compared bit by bit whenever it is asked for, an eighth of the work: neither an address nor torch's count of
    versions tells that weights have changed, since fused optimisers write past the count."""
    bits, kept = weight.view(torch.int32), _kept.setdefault(owner, {})
    found = kept.get(name)
    if found is None or found[0].shape != bits.shape or not torch.equal(found[0], bits):
        found = kept[name] = bits.clone(), torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return found[1]
