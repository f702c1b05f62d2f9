"""Running laws over a part, and the search for the smallest case in which one breaks."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.language import _
from seqloom.laws.case import Case, Kind, Law, Part
from seqloom.laws.compare import LawError, NotApplicable
from seqloom.laws.subjects import Stepping

SECONDS = 4.0  # to look for the smallest case of one law
FEW = 24  # numbers that are written out
LONGEST = 300  # characters of an error of the user's code
LARGER = (
    {},
    {"input_dim": 8, "dim": 8},
    {"input_dim": 64, "dim": 64, "heads": 8},
)  # sizes in which a part may be built


class Failure(NamedTuple):
    """`key` tells failures apart: a smaller case must fail in the same way."""

    key: tuple[object, ...]
    message: str
    line: int | None = None  # in the user's file


class Result(NamedTuple):
    law: Law
    outcome: str  # holds, broken, or skipped: the law does not apply
    message: str = ""
    case: Case | None = None
    numbers: str = ""  # inputs and parameters, if they are few
    line: int | None = None


def check(part: Part, kind: Kind, laws: tuple[Law, ...], seed: int = 0) -> Iterator[Result]:
    """The result of each law. What has been shown is not shown again."""
    seen: dict[tuple[object, ...], str] = {}
    shapeless = False
    sizes = _sizes(part, kind, seed)
    for law in laws:
        if shapeless:
            yield Result(law, "skipped", _("not tried before the law {law} holds", law="shapes"))
            continue
        case = replace(law.start, seed=seed, **sizes)
        found = attempt(part, kind, law, case)
        if not isinstance(found, Failure):
            yield Result(law, "skipped" if found else "holds", found.reason if found else "")
        elif found.key in seen:
            text = _("the same failure as in the law {law}", law=seen[found.key])
            yield Result(law, "broken", text, None, "", found.line)
        else:
            seen[found.key] = law.name
            shapeless = law.name == "shapes"
            case, found = smallest(part, kind, law, case, found)
            yield Result(law, "broken", found.message, case, _numbers(part, law, case), found.line)


def _sizes(part: Part, kind: Kind, seed: int) -> dict[str, int]:
    """The first sizes in which the part can be built: some want an even width, or several heads."""
    for sizes in LARGER:
        try:
            kind.module(part, replace(Case(seed=seed), **sizes))
        except Exception:  # shown by the laws, if no size will do
            continue
        return sizes
    return {}


def attempt(part: Part, kind: Kind, law: Law, case: Case) -> Failure | NotApplicable | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return law.unless(kind.module(part, case)) or law.check(law.subject(part, case))
        except LawError as broken:
            return Failure(("law", broken.text), str(broken))
        except Exception as error:
            found = failure_of(error, part)
            return found if found.line or not part.file else _with_line(part, law, case, found)


def failure_of(error: Exception, part: Part) -> Failure:
    """An error of the user's code: its last line, and where it was raised in the user's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == part.file]
    line = frames[-1].lineno if frames else None
    name = type(error).__name__
    return Failure((name, line), clipped(f"{name}: {error}" if str(error) else name), line)


def clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _with_line(part: Part, law: Law, case: Case, failure: Failure) -> Failure:
    """An error of the backward pass, as of a tensor changed in place, with the line that made the operation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with torch.autograd.detect_anomaly():
                law.check(law.subject(part, case))
        except Exception:  # the same one
            for text in (str(one.message) for one in caught):
                lines = [line.partition(", line ")[2] for line in text.splitlines() if f'File "{part.file}"' in line]
                if lines and (number := lines[-1].partition(",")[0]).isdecimal():
                    return Failure((*failure.key[:1], int(number)), failure.message, int(number))
    return failure


def smallest(part: Part, kind: Kind, law: Law, case: Case, failure: Failure) -> tuple[Case, Failure]:
    """A case that fails in the same way, of which nothing more can be left out."""
    end = time.monotonic() + SECONDS
    shrunk = True
    while shrunk and time.monotonic() < end:
        shrunk = False
        for smaller in case.smaller(law.sizes):
            found = attempt(part, kind, law, smaller)
            if isinstance(found, Failure) and found.key == failure.key:
                case, failure, shrunk = smaller, found, True
                break
            if time.monotonic() > end:
                break
    return case, failure


def _numbers(part: Part, law: Law, case: Case) -> str:
    """Inputs and parameters of a case, if they are few enough to compute with by hand."""
    try:
        subject: Any = law.subject(part, case)()
        if isinstance(subject, Stepping) and "steps" not in law.sizes:
            return ""  # the law draws more of them
        inputs = subject.inputs()
        found = {_("input {n}", n=n) if len(inputs) > 1 else _("input"): x for n, x in enumerate(inputs, 1)}
        found |= {name.rpartition(".")[2]: p for name, p in subject.module.named_parameters()}
    except Exception:  # a part that cannot be built
        return ""
    if sum(x.numel() for x in found.values()) > FEW:
        return ""
    return "; ".join(f"{name} = {_listed(x)}" for name, x in found.items())


def _listed(x: Tensor) -> str:
    def rounded(value: Any) -> Any:
        return [rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.4g}")

    return str(rounded(x.detach().double().tolist()))


def choose_laws(kind: Kind, names: list[str] | None) -> tuple[Law, ...]:
    return tuple(law for law in kind.laws if names is None or law.name in names)
