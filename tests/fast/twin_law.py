"""The law *twin*: whatever is registered as a fast twin gives the answers and the gradients of the plain function.

`tests/fast/<folder>/examples.py` has EXAMPLES: the name of a plain function -> calls of it, as makers. Every registered
twin must support one of them, here or, for kernels, in Triton's interpreter or on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom import acceleration
from seqloom.acceleration import Twin


@dataclass
class Call:
    """One call: its arguments, drawn anew by each maker, and how near the answers have to be."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    bound: float = 1e-5
    grad: bool = True  # gradients are compared too; else it runs without
    same: Callable[[Any, Any], None] | None = None  # another comparison, for random answers and states of fast code
    plain: Maker | None = None  # the call for the plain function, where these arguments have a state of fast code
    within: Callable[[], AbstractContextManager[Any]] = nullcontext  # where it runs: autocast, kernels turned on

    @property
    def inputs(self) -> list[Tensor]:
        """What gets a gradient: float tensors that ask for one, and trained parameters of modules."""
        found: list[Tensor] = []
        for value in (*self.args, *self.keywords.values()):
            if isinstance(value, nn.Module):
                found += [p for p in value.parameters() if p.requires_grad]
            found += [x for x in tensors(value) if x.requires_grad and x.is_leaf]
        return found


Maker = Callable[[], Call]


def call(
    *args: Any,
    bound: float = 1e-5,
    grad: bool = True,
    same: Any = None,
    plain: Maker | None = None,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    **keywords: Any,
) -> Call:
    return Call(args, keywords, bound, grad, same, plain, within)


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def run(function: Callable[..., Any], make: Maker) -> tuple[Call, Any, list[Tensor]]:
    """The answer and the gradients of a call."""
    torch.manual_seed(5)
    made = make()
    with torch.set_grad_enabled(made.grad), made.within():
        answer = function(*made.args, **made.keywords)
    outputs = [y for y in tensors(answer) if y.requires_grad]
    if not made.grad or not outputs or not made.inputs:
        return made, answer, []
    weights = (torch.arange(1.0, y.numel() + 1).sin().to(y).view_as(y) for y in outputs)
    total = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
    keep = made.same is not None  # which may want gradients itself
    grads = torch.autograd.grad(total, made.inputs, retain_graph=keep, allow_unused=True)  # pyright: ignore
    return made, answer, [torch.zeros_like(x) if g is None else g for x, g in zip(made.inputs, grads, strict=True)]


def supports(twin: Twin, make: Maker) -> bool:
    made = make()
    with torch.set_grad_enabled(made.grad), made.within():
        return bool(twin.supported(*made.args, **made.keywords))


def obeys(twin: Twin, plain: Callable[..., Any], make: Maker) -> None:
    with acceleration.plain():  # so that a state which a call makes is a plain one too
        _, wanted, wanted_grads = run(plain, make().plain or make)
    made, found, found_grads = run(twin.fast, make)
    if made.same is not None:
        made.same(found, wanted)
        return
    pairs = list(zip(tensors(found), tensors(wanted), strict=True))
    assert pairs, "the answer has no tensors to compare"
    for a, b in (*pairs, *zip(found_grads, wanted_grads, strict=True)):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=made.bound, atol=made.bound * max(1.0, float(b.detach().abs().max())))
