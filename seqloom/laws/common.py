"""Laws of every kind of part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from seqloom.acceleration import plain as plain_code
from seqloom.language import _
from seqloom.laws.case import Case, Law, Part
from seqloom.laws.compare import (
    LawError,
    NotApplicable,
    gradients,
    kind,
    number,
    require_all_close,
    require_finite,
    weighed,
)
from seqloom.laws.subjects import Maker, Reading, Subject, real
from seqloom.parts.probe import Probed, watch
from seqloom.parts.visibility import keep
from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights

BOUNDS = {torch.float64: 0.0, torch.float32: 1e-4, torch.bfloat16: 0.15}  # of the largest number
FILE = "weights.safetensors"


def padding(make: Maker) -> None:
    """What stands in a padded position changes no real one, nor the row's last state; a row alone gives the same."""
    subject: Reading = make()
    x, lengths = subject.x.clone().requires_grad_(), subject.lengths
    found = real(*subject.read(x, lengths), lengths)
    empty = ~keep(lengths, x.size(1))[:, :, None]
    for filling in (0.0, -7.0, 100.0):
        require_all_close(
            real(*subject.read(torch.where(empty, filling, subject.x), lengths), lengths),
            found,
            "{filling} in the padding changes an output from {expected} to {found}; the largest difference is "
            "{difference}",
            filling=f"{filling:g}",
        )
    total = weighed(found)
    grad = torch.autograd.grad(total, x)[0] if total.requires_grad else torch.zeros_like(x)
    if not grad.masked_select(empty).eq(0).all():
        raise LawError("a padded position has a gradient")
    if not grad.masked_select(~empty).abs().sum() > 0:
        raise LawError("no real position has a gradient")
    together = subject.read(subject.x, lengths)
    for row, length in enumerate(lengths.tolist()):
        places, rows = subject.read(subject.x[row : row + 1, :length], None)
        require_all_close(
            [*places, *rows],
            [*(each[row : row + 1, :length] for each in together[0]), *(one[row : row + 1] for one in together[1])],
            "row {row} alone gives {found} at {place}, and {expected} in the batch; the largest difference is "
            "{difference}",
            row=row + 1,
        )


def repeating(make: Maker) -> None:
    """The same inputs give the same outputs every time."""
    subject: Subject = make()
    first = [y.clone() for y in subject.outputs()]
    for _again in range(2):
        require_all_close(
            subject.outputs(),
            first,
            "the same call gives {expected} at {place} the first time and {found} later; the largest difference is "
            "{difference}",
        )


def finite(make: Maker) -> None:
    """Outputs and gradients of ordinary numbers are neither infinite nor NaN."""
    subject: Subject = make()
    outputs = subject.outputs()
    for y in outputs:
        require_finite(y)
    names = [name for name, p in subject.module.named_parameters() if p.requires_grad]
    for name, grad in zip(names, gradients(subject.module, outputs), strict=True):
        if not grad.isfinite().all():
            bad = grad[~grad.isfinite()][0]
            raise LawError("a gradient of {name} is {found}", name=name, found=number(float(bad)))


def untouched(make: Maker) -> None:
    """A call does not write into its inputs."""
    subject: Subject = make()
    before = [x.clone() for x in subject.inputs()]
    with torch.no_grad():
        subject.outputs()
    require_all_close(
        subject.inputs(), before, "it writes into its input: {expected} at {place} is {found} after the call"
    )


def twin(make: Maker) -> None:
    """The plain code gives what the fast code gives, with the same gradients, also while it is watched."""
    subject: Subject = make()
    fast = subject.outputs()
    expected = gradients(subject.module, fast)
    with plain_code(), watch(subject.module):
        plain = subject.outputs()
    require_all_close(
        plain,
        fast,
        "the plain code gives {found} at {place}, and the fast code {expected}; the largest difference is {difference}",
    )
    require_all_close(
        gradients(subject.module, plain),
        expected,
        "a gradient of its parameters is {found} by the plain code, and {expected} by the fast code",
        1e-8,
    )


def reporting(make: Maker) -> None:
    """Every part that can be watched reports while it is watched, numbers only, and is quiet afterwards."""
    subject: Subject = make()
    with watch(subject.module) as seen:
        subject.outputs()
    silent = [name for name, part in subject.module.named_modules() if isinstance(part, Probed) and not seen[name]]
    if silent:
        raise LawError("watched, but nothing is reported by {names}", names=", ".join(map(repr, silent)))
    reports = [report for several in seen.values() for report in several]
    if not all(report.isfinite().all() and not report.requires_grad for report in reports):
        raise LawError("a report is not finite, or not detached")
    subject.outputs()
    if sum(map(len, seen.values())) != len(reports):
        raise LawError("it goes on reporting when it is no longer watched")


def dtypes(make: Maker) -> None:
    """Results have the type of the part; float32 is close to float64, and bfloat16 still near."""
    exact = make().outputs()
    for dtype, bound in BOUNDS.items():
        subject = make(dtype=dtype)
        found = subject.outputs()
        wanted = str(dtype).removeprefix("torch.")
        for y, z in zip(found, exact, strict=True):
            if y.dtype != dtype:
                raise LawError(
                    "with weights and inputs of {wanted} the output is {found}", wanted=wanted, found=kind(y)
                )
            require_finite(y)
            apart = (y.double() - z).abs().max()
            if not apart <= bound * max(1.0, z.abs().max()):
                raise LawError(
                    "in {wanted} the output differs by {difference}", wanted=wanted, difference=number(apart)
                )
        if not all(grad.isfinite().all() for grad in gradients(subject.module, found)):
            raise LawError("in {wanted} a gradient is not finite", wanted=wanted)


def devices(make: Maker) -> NotApplicable | None:
    """A GPU gives what the CPU gives, with the same gradients."""
    if not torch.cuda.is_available():
        return NotApplicable("there is no CUDA device here")
    here, there = make(), make(device="cuda")
    found = there.outputs()
    if {y.device.type for y in found} != {"cuda"}:
        raise LawError("an output of a part on the GPU is on the CPU")
    require_all_close(
        [y.cpu() for y in found],
        here.outputs(),
        "the GPU gives {found} at {place}, and the CPU {expected}; the largest difference is {difference}",
        1e-9,
    )
    require_all_close(
        [grad.cpu() for grad in gradients(there.module, found)],
        gradients(here.module, here.outputs()),
        "a gradient of its parameters is {found} on the GPU, and {expected} on the CPU",
        1e-7,
    )
    return None


def saving(make: Maker) -> NotApplicable | None:
    """Weights written to a file and read into a part that started elsewhere make it the same part."""
    one, other = make(), make(seed=5)
    if not weights(one.module):
        return NotApplicable("it has nothing to save")
    before = one.outputs()
    if all(torch.equal(a, b) for a, b in zip(before, other.outputs(), strict=True)):
        raise LawError("its parameters change nothing: other weights give the same output")
    with TemporaryDirectory() as folder:
        save_weights(Path(folder) / FILE, weights(one.module))
        load_weights(other.module, read_tensors(Path(folder) / FILE), FILE)
    require_all_close(
        other.outputs(),
        before,
        "with the same weights another one gives {found}, and not {expected}: a tensor is neither a Parameter nor a "
        "buffer",
        0.0,
    )
    return None


def gradient_check(make: Maker, fast: bool = False) -> NotApplicable | None:
    """Gradients are what small changes of every parameter, and of the inputs of a call, do, in float64."""
    subject: Subject = make()
    trained = {f"module.{name}": p for name, p in subject.module.named_parameters() if p.requires_grad}
    arguments = getattr(subject, "arguments", ())
    if not trained and not arguments:
        return NotApplicable("it has no parameters")
    if other := [y for y in subject.outputs() if y.dtype != torch.float64]:
        return NotApplicable("small changes show in float64 alone, and its output is {found}", found=kind(other[0]))
    calling, names = _AsModule(subject), list(trained)

    def call(*values: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(names, values, strict=False))
        return torch.func.functional_call(calling, named, values[len(names) :])

    given = [*trained.values(), *arguments]
    values = tuple(x.detach().clone().requires_grad_(x.is_floating_point()) for x in given)
    try:
        torch.autograd.gradcheck(call, values, fast_mode=fast, atol=1e-6)
    except GradcheckError:
        shown = [name.removeprefix("module.") for name in names]
        _raise_worst(call, values, [*shown, *(_("input {n}", n=n + 1) for n in range(len(arguments)))])
        raise LawError("a gradient differs from what small changes do, or from call to call") from None
    return None


class _AsModule(nn.Module):
    """A subject as a module, so that its parameters can be given from outside."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.module = subject.module
        self.subject = subject

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.subject.call(*arguments) if arguments else self.subject.outputs())  # pyright: ignore


def _raise_worst(call: object, values: tuple[Tensor, ...], names: list[str], step: float = 1e-6) -> None:
    """Every number by itself, until a gradient differs from what a small change does."""

    def total() -> Tensor:
        return weighed(list(call(*values)))  # type: ignore

    loss = total()
    differentiable = [x for x in values if x.requires_grad]
    grads: list[Tensor | None] = [None] * len(values)
    if loss.requires_grad:
        grads = list(torch.autograd.grad(loss, differentiable, allow_unused=True))
    for name, x, grad in zip(names, values, grads, strict=False):
        for n in range(x.numel()):
            flat = x.data.view(-1)
            kept = flat[n].item()
            with torch.no_grad():
                flat[n] = kept + step
                up = float(total())
                flat[n] = kept - step
                down = float(total())
                flat[n] = kept
            found, expected = 0.0 if grad is None else float(grad.reshape(-1)[n]), (up - down) / (2 * step)
            if not abs(found - expected) <= 1e-5 + 1e-3 * abs(expected):
                index = [int(i) + 1 for i in torch.unravel_index(torch.tensor(n), x.shape)]
                raise LawError(
                    "the gradient of {name} at {index} is {found}, and small changes of it give {expected}",
                    name=name,
                    index=index,
                    found=number(found),
                    expected=number(expected),
                )


QUICK_CHECK = partial(gradient_check, fast=True)


def first_laws(calls: Callable[[Part, Case], Maker], sizes: tuple[str, ...]) -> tuple[Law, ...]:
    """Those of every kind that are looked at first."""
    return (
        Law("finite", "Ordinary numbers give no infinity and no NaN, nor do their gradients.", finite, calls, sizes),
        Law(
            "dtype",
            "Results have the number type of the weights, and are close in every type.",
            dtypes,
            calls,
            sizes,
        ),
        Law(
            "repeat",
            "The same inputs give the same outputs every time: nothing is remembered on `self`.",
            repeating,
            calls,
            sizes,
        ),
    )


def last_laws(calls: Callable[[Part, Case], Maker], sizes: tuple[str, ...]) -> tuple[Law, ...]:
    return (
        Law("gradients", "Gradients are what small changes of weights and inputs do.", QUICK_CHECK, calls, sizes),
        Law("saving", "Weights saved and loaded into another part make it the same part.", saving, calls, sizes),
    )


PREFIX = "All steps at once equal the same steps in any pieces, with the state passed on."
CAUSALITY = "What comes later changes no earlier output."
PADDING = "What stands behind the end of a row changes nothing; a row alone gives the same."
PICK = "Rows of the state can be taken, repeated and reordered, as in beam search."
