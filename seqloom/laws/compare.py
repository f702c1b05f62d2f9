"""What a law reports, and tensors compared: where they differ, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.language import _

AXES = {1: ("feature",), 2: ("row", "feature"), 3: ("row", "step", "feature")}
EXACT = 1e-10
ROUNDING = {torch.float64: 0.0, torch.float32: 1e-5}  # how near to each other results can be, by their type
NOT_FINITE = "the output at {place} is {found}"


class LawError(Exception):
    """A law does not hold. `text` with its `values` says what was found; the text alone tells failures apart."""

    def __init__(self, text: str, **values: object) -> None:
        super().__init__(_(text, **values))
        self.text = text


class NotApplicable:
    """What a law returns if it does not concern a part, and why."""

    def __init__(self, text: str, **values: object) -> None:
        self.reason = _(text, **values)


class Difference(NamedTuple):
    """The first place at which two tensors differ, and by how much they do at most."""

    index: tuple[int, ...]
    found: float
    expected: float
    largest: float


def difference(found: Tensor, expected: Tensor, bound: float = EXACT) -> Difference | None:
    """None if they are equal within `bound`, relative and absolute. NaN equals nothing."""
    found, expected = found.detach(), expected.detach()
    apart = (found - expected).abs()
    bound = max(bound, ROUNDING.get(found.dtype, 1e-2))
    wrong = ~((apart <= bound + bound * expected.abs()) | (found == expected))
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    largest = float(apart[wrong].max()) if apart[wrong].isfinite().all() else float("inf")
    return Difference(index, float(found[index]), float(expected[index]), largest)


def require_close(
    found: Tensor,
    expected: Tensor,
    text: str,
    bound: float = EXACT,
    axes: Sequence[str] | None = None,
    **values: object,
) -> None:
    """Raise LawError with `text` if they differ. It may use {place}, {found}, {expected} and {difference}."""
    if found.shape != expected.shape:
        raise LawError("the shape is {found}, and {expected} is right", found=shape(found), expected=shape(expected))
    if found.dtype != expected.dtype:
        raise LawError("the numbers are {found}, and {expected} is right", found=kind(found), expected=kind(expected))
    if (apart := difference(found, expected, bound)) is None:
        return
    if not (isfinite(apart.found) and isfinite(apart.expected)):
        bad = apart.expected if isfinite(apart.found) else apart.found
        raise LawError(NOT_FINITE, place=place(apart.index), found=number(bad))
    numbers = {"found": number(apart.found), "expected": number(apart.expected), "difference": number(apart.largest)}
    raise LawError(text, **{"place": place(apart.index, axes), **numbers, **values})


def require_finite(y: Tensor) -> None:
    if not y.isfinite().all():
        index = tuple((~y.isfinite()).nonzero()[0].tolist())
        raise LawError(NOT_FINITE, place=place(index), found=number(float(y[index])))


def require_all_close(
    found: Sequence[Tensor], expected: Sequence[Tensor], text: str, bound: float = EXACT, **values: Any
) -> None:
    for one, other in zip(found, expected, strict=True):
        require_close(one, other, text, bound, **values)


def place(index: Sequence[int], axes: Sequence[str] | None = None) -> str:
    """An index in words, counted from 1: row 1, step 2, feature 1."""
    names = axes or AXES.get(len(index))
    if names is None:
        return str([n + 1 for n in index])
    return _(", ").join(f"{_(name)} {n + 1}" for name, n in zip(names, index, strict=True))


def number(value: float) -> str:
    return f"{value:.4g}"


def shape(x: Tensor) -> str:
    return str(list(x.shape))


def kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def weighed(outputs: list[Tensor]) -> Tensor:
    """One number in which every output has a weight of its own."""
    return sum((y * torch.arange(1.0, y.numel() + 1).double().sin().to(y).view_as(y)).sum() for y in outputs)  # type: ignore


def gradients(module: nn.Module, outputs: list[Tensor]) -> list[Tensor]:
    """Of `weighed`, for each parameter (zeros where it has none)."""
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        return []
    total = weighed(outputs)
    if not total.requires_grad:
        raise LawError("no gradient goes from its output to its parameters")
    found = torch.autograd.grad(total, trained, allow_unused=True)
    return [torch.zeros_like(p) if grad is None else grad for p, grad in zip(trained, found, strict=True)]
