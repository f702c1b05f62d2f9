"""The laws of norms."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.laws import common
from seqloom.laws.case import Case, Kind, Law, Part
from seqloom.laws.compare import LawError, NotApplicable, require_all_close, require_close, shape
from seqloom.laws.subjects import Calling, Maker, Reading
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.visibility import keep
from seqloom.training.distributed.sharding import saved_buffers

SIZES, LENGTHS = ("rows", "steps", "dim"), ("lengths", "dim")


def build_norm(part: Part, case: Case) -> nn.Module:
    norm = part.make(dim=case.dim)
    if not isinstance(norm, nn.Module):
        raise LawError("it makes a {found}, which is no nn.Module", found=type(norm).__name__)
    if not isinstance(getattr(norm, "across", None), bool):
        raise LawError("it does not say by `{name}`, True or False, what it can do", name="across")
    return norm


def calls(part: Part, case: Case) -> Maker:
    """In evaluation."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        norm = case.build(partial(build_norm, part, case), seed, dtype, device)
        x = case.draw(case.rows, case.steps, case.dim).to(device, dtype)
        return Calling(norm, lambda x: [norm(x)], (x,))

    return make


def trains(part: Part, case: Case) -> Maker:
    """In training, every call from the same running statistics, and padded if the norm may know it."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        norm = case.build(partial(build_norm, part, case), seed, dtype, device).train()
        kept = {name: tensor.clone() for name, tensor in saved_buffers(norm)}
        lengths = torch.tensor(case.lengths, device=device)
        real = keep(lengths, max(case.lengths))

        def call(x: Tensor) -> list[Tensor]:
            with torch.no_grad():
                for name, tensor in saved_buffers(norm):
                    tensor.copy_(kept[name])
            return [norm(x, lengths)[real]]

        return Calling(norm, call, (case.draw(*real.shape, case.dim).to(device, dtype),))

    return make


def reads(part: Part, case: Case) -> Maker:
    """In training, over rows of unequal length."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        norm: Any = case.build(partial(build_norm, part, case), seed, dtype, device).train()
        x = case.draw(len(case.lengths), max(case.lengths), case.dim).to(device, dtype)
        return Reading(norm, lambda x, lengths: ([norm(x, lengths)], []), x, torch.tensor(case.lengths, device=device))

    return make


def check_shapes(make: Maker) -> None:
    """[..., dim] gives the same size; `lengths` may be given."""
    subject: Calling = make(dtype=torch.float32)
    norm: Any = subject.module
    x = subject.arguments[0]
    whole = norm(x)
    for given in (x, x.flatten(0, 1), x[:, None]):
        found = norm(given)
        if found.shape != given.shape:
            raise LawError("the shape is {found}, and {expected} is right", found=shape(found), expected=shape(given))
        require_close(
            found.reshape(x.shape),
            whole,
            "of {given} an output is {found}, and {expected} of [rows, steps, dim]",
            1e-5,
            given=shape(given),
        )
    with torch.no_grad():
        norm(x, torch.full((x.size(0),), x.size(1)))


def check_padding(make: Maker) -> None:
    """In training too, what stands in a padded position changes neither a real one nor the running statistics."""
    expected, statistics = _trained(make, 0.0)
    for filling in (-7.0, 100.0):
        found, after = _trained(make, filling)
        require_close(
            found,
            expected,
            "{filling} in the padding changes an output from {expected} to {found}; the largest difference is "
            "{difference}",
            filling=f"{filling:g}",
        )
        require_all_close(
            after,
            statistics,
            "{filling} in the padding changes a running statistic from {expected} to {found}",
            filling=f"{filling:g}",
        )


def _trained(make: Maker, filling: float) -> tuple[Tensor, list[Tensor]]:
    """Outputs at real positions, and running statistics, after a batch with this in its padding."""
    subject: Reading = make()
    real = keep(subject.lengths, subject.x.size(1))
    y = subject.read(torch.where(real[:, :, None], subject.x, filling), subject.lengths)[0][0]
    return y[real], [tensor for _, tensor in saved_buffers(subject.module)]


def check_positions(make: Maker) -> None:
    """A position by itself gives what it gives among the others: in evaluation, and without `across` in training."""
    subject: Calling = make()
    norm, x = subject.module, subject.arguments[0]
    require_close(
        _one_by_one(norm, x),
        norm(x),
        "in evaluation, a position alone gives {found} at {place}, and {expected} among others",
    )
    if not norm.across:
        norm.train()
        require_close(
            _one_by_one(norm, x),
            norm(x),
            "in training, a position alone gives {found} at {place}, and {expected} among others: `across` "
            "must be True",
        )


def _one_by_one(norm: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([norm(one) for row in x.split(1, 0) for one in row.split(1, 1)], 1).view_as(x)


def check_evaluation(make: Maker) -> None:
    """In evaluation no statistic changes."""
    subject: Calling = make()
    norm, x = subject.module, subject.arguments[0]
    before = [tensor.clone() for _, tensor in saved_buffers(norm)]
    norm(x)
    after = [tensor for _, tensor in saved_buffers(norm)]
    require_all_close(after, before, "a statistic is {expected} before a call in evaluation, and {found} after it")


def without_statistics(norm: Any) -> NotApplicable | None:
    return None if any(True for _ in saved_buffers(norm)) else NotApplicable("it has no running statistics")


def _is_norm(one: type) -> bool:
    if not issubclass(one, nn.Module):
        return False
    names = list(inspect.signature(one.forward).parameters)
    return isinstance(getattr(one, "across", None), bool) or names[1:] == ["x", "lengths"]


NORM = Kind(
    "norm",
    ("dim",),
    _is_norm,
    NORMS,
    build_norm,
    (
        Law("shapes", "[..., dim] gives the same size, whatever stands before.", check_shapes, calls, SIZES),
        *common.first_laws(calls, SIZES),
        Law("in-place", "A call writes into none of its inputs.", common.untouched, calls, SIZES),
        Law(
            "positions",
            "A position alone gives what it gives among others: always, or with `across` in evaluation.",
            check_positions,
            calls,
            SIZES,
        ),
        Law(
            "padding",
            "In training, what stands behind the end of a row changes no output and no running statistic.",
            check_padding,
            reads,
            LENGTHS,
        ),
        Law(
            "evaluation",
            "In evaluation no running statistic changes.",
            check_evaluation,
            calls,
            SIZES,
            without_statistics,
        ),
        Law(
            "gradients",
            "Gradients are what small changes of weights and inputs do, in training too.",
            common.QUICK_CHECK,
            trains,
            LENGTHS,
        ),
        common.last_laws(calls, SIZES)[1],
    ),
)
